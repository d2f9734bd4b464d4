"""Scorers: samples in, verdicts out."""

from services.reward.scorers.base import Context, Sample, Scorer, Verdict
from services.reward.scorers.registry import BUILT_IN, build_scorer

__all__ = ["BUILT_IN", "Context", "Sample", "Scorer", "Verdict", "build_scorer"]
