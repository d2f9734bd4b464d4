"""Scorers: samples in, verdicts out.

Empty: a worker of a scorer imports this package before its own module.
"""
