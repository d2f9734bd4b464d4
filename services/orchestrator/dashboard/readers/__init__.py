"""Readers of the files of a run directory, for the dashboard."""
