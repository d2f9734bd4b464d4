"""Resolves a `run.toml`, the environment and the arguments into the settings of each service."""
