"""From a `run.toml`, the environment and the arguments to each service's settings."""
