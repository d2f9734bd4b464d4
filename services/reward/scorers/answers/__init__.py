"""The answer that a completion gives: where it stands, numbers, units, notations."""
