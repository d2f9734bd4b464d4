"""Engines that generate: each holds the protocol in `protocol.py`."""
