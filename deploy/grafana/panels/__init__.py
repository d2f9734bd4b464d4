"""The three dashboards, each a module."""
