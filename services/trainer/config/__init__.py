"""The trainer's tables of `run.toml`. Imports no torch."""
