"""Scorers: named pure functions from a completion to a number."""

from services.reward.scorers.registry import (
    BUILT_IN,
    GroupScorer,
    Scorer,
    check_columns,
    load_group_scorer,
    load_scorer,
)

__all__ = ["BUILT_IN", "GroupScorer", "Scorer", "check_columns", "load_group_scorer", "load_scorer"]
