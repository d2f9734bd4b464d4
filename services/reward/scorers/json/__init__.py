"""Completions as JSON, held against a schema."""
