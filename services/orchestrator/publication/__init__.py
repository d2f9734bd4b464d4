"""Publishes one version of the weights to every replica: prepare, transfer, verify, commit."""
