"""Plays episodes turn by turn; runs no user code."""
