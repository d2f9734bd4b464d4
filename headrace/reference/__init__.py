"""Writes the reference pages of docs/ from the code, and describes the algorithms."""
