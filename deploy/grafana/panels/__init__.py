"""The two dashboards, each a module."""
