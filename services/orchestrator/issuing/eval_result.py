"""Results of an evaluation: accuracy, pass@k, avg@k. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.wire.contracts import Score


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """One evaluation of one version."""

    version: int
    accuracy: float | None
    """Share of correct rollouts among the scored ones; None if there are none."""
    pass_at_k: float | None
    """Share of prompts with at least one correct rollout among k."""
    avg_at_k: float | None
    """Mean over prompts of the share of correct rollouts."""
    k: int
    prompts: int
    """Prompts with at least one scored rollout."""
    missing: int
    """Prompts without a scored rollout (late, dead or abstained): left out above."""
    abstained: int = 0
    """Rollouts that no scorer could score: left out above."""


def count_correct(scores: Sequence[Score], *, component: str, above: float) -> tuple[int, int]:
    """Number of rollouts whose score (or a component of it) exceeds `above`, and number of those that have one."""
    values = [score.components.get(component) if component else score.value for score in scores]
    scored = [value for value in values if value is not None]
    return sum(value > above for value in scored), len(scored)


def summarize(version: int, results: Mapping[int, tuple[int, int, int]], *, wanted: int, k: int) -> EvalResult:
    """Aggregates `results`: prompt -> (correct, total, abstained). A total of 0 counts as a missing prompt."""
    scored = [(correct, total) for correct, total, _ in results.values() if total]
    totals = sum(total for _, total in scored)
    return EvalResult(
        version=version,
        accuracy=sum(correct for correct, _ in scored) / totals if totals else None,
        pass_at_k=sum(correct > 0 for correct, _ in scored) / len(scored) if scored else None,
        avg_at_k=sum(correct / total for correct, total in scored) / len(scored) if scored else None,
        k=k,
        prompts=len(scored),
        missing=wanted - len(scored),
        abstained=sum(abstained for _, _, abstained in results.values()),
    )
