"""A fork server: one process imports torch and the libraries once, and forks each service of the run from itself."""
