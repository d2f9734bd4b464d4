"""The trainer: scored groups in, weights out."""
