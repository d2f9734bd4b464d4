"""What an evaluation says: accuracy, pass@k, avg@k. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wire.contracts import Score


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """One evaluation of one version."""

    version: int
    accuracy: float | None
    """Share of rollouts that are correct, over the prompts that came back; None if none did."""
    pass_at_k: float | None
    """Share of prompts with at least one correct rollout among k."""
    avg_at_k: float | None
    """Mean over prompts of the share of correct rollouts."""
    k: int
    prompts: int
    """Prompts that came back."""
    missing: int
    """Prompts that did not come back by the deadline, or were buried: left out above."""
    abstained: int = 0
    """Rollouts that came back and that nobody could score: left out above too."""


def count_correct(scores: Sequence[Score], *, component: str, above: float) -> tuple[int, int]:
    """Number of rollouts whose score (or component of it) is above the bound, and of those that have one at all."""
    values = [score.components.get(component) if component else score.value for score in scores]
    scored = [value for value in values if value is not None]
    return sum(value > above for value in scored), len(scored)


def summarize(version: int, results: Mapping[int, tuple[int, int, int]], *, wanted: int, k: int) -> EvalResult:
    """`results` maps prompt -> (correct, total, abstained); a total of 0 is a prompt that came to nothing."""
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
