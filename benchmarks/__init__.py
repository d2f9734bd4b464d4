"""Measurements: each prints what it saw and, with --json, one object as its last line. Never part of the tests."""
