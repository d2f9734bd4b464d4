"""Scorers: named pure functions from a completion to a number."""

from services.reward.scorers.registry import BUILT_IN, Scorer, check_columns, load_scorer

__all__ = ["BUILT_IN", "Scorer", "check_columns", "load_scorer"]
