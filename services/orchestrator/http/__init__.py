"""Shared parts of the orchestrator's HTTP routes, and the chat API."""
