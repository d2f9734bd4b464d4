"""Rollouts in, scores out. Needs no torch."""
