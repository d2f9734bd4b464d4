"""Answers of the orchestrator's HTTP API and of the dashboard: one model an answer, one module a topic."""
