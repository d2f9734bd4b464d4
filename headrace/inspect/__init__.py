"""Reads a run, live or ended: status, waits, results, the history of one group, the history check, plots."""
