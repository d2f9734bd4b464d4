"""Scorers: samples in, verdicts out."""

from headrace.services.reward.scorer import Context, Sample, Scorer, Verdict
from headrace.services.reward.scorers.registry import BUILT_IN, build_scorer

__all__ = ["BUILT_IN", "Context", "Sample", "Scorer", "Verdict", "build_scorer"]
