"""Stand-in for a package that is not installed: see `_custom_ops`."""
