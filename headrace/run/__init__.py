"""Makes a run directory and its processes from a resolved config, and runs them to the end."""
