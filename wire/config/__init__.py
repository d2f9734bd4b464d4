"""Reads what comes from outside: the tables of settings, strict JSON."""
