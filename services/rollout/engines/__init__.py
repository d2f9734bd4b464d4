"""Generation engines, which implement the protocol in `protocol.py`."""
