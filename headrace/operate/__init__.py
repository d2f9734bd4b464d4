"""Operates a live run through its orchestrator's HTTP API, its supervisor's socket and its pages."""
