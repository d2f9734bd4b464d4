"""How many versions tokens lag the weights, and what the bound on it costs a step. Pure.

The lag of a token is the version of the weights before its step minus the version that sampled it: it follows from the
journaled batch alone, so a replay masks the same tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.wire.contracts import Rollout, Score, ScoredGroup
from headrace.wire.contracts.messages import TokenMask

UNBOUNDED = -1
"""No token is masked for its lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UntrainedGroups:
    """Groups that ended since the previous batch without being trained."""

    uninformative: int = 0
    """Groups that dynamic sampling discarded."""
    stale: tuple[tuple[int, ...], ...] = ()
    """Sampled tokens of the rollouts, for each group that was dropped as stale."""
    spent: int = 0
    """Sampled tokens of all groups that were dropped, for any reason."""


def most_lag(policy: str, max_staleness: int) -> int:
    """The highest lag that is trained; UNBOUNDED if `run.stale` is not `mask`.

    At `max_staleness = 0` the trainer takes no group with a lag: there is nothing to mask.
    """
    return max_staleness if policy == "mask" and max_staleness else UNBOUNDED


def lags(rollout: Rollout, version: int) -> NDArray[np.int32]:
    """int32 [completion]: versions between sampling and training; `version`: the weights before the step."""
    found = np.zeros(len(rollout.token_ids), dtype=np.int32)
    for span in rollout.spans:
        found[span.start : span.end] = version - span.version.version
    return found


def fresh(rollout: Rollout, version: int, bound: int) -> TokenMask:
    """Bool [completion]: tokens with a lag of at most `bound`; all if it is UNBOUNDED."""
    if bound == UNBOUNDED:
        return np.ones(len(rollout.token_ids), dtype=np.bool_)
    return lags(rollout, version) <= bound


def oldest_trained(scored: ScoredGroup, version: int, bound: int) -> int | None:
    """The highest lag of a trained group's tokens; None if all of them are masked."""
    found = [version - span.version.version for rollout in scored.group.rollouts for span in rollout.spans]
    within = [lag for lag in found if bound == UNBOUNDED or lag <= bound]
    return max(within, default=None)


def scored_rollouts(scored: ScoredGroup) -> list[tuple[Rollout, Score]]:
    """The group's rollouts that have a score, each with it; greedy baselines are left out."""
    pairs = zip(scored.group.rollouts, scored.scores[: scored.group.prompt.trained], strict=False)
    return [(rollout, score) for rollout, score in pairs if score.value is not None]


def lengths_of(scored: ScoredGroup) -> tuple[int, ...]:
    """Sampled tokens of the group's rollouts that have a score; greedy baselines are left out."""
    return tuple(rollout.trained_tokens for rollout, _ in scored_rollouts(scored))


def generated_tokens(scored: ScoredGroup) -> int:
    """Tokens that the policy sampled in a group, including greedy baselines and rollouts without a score."""
    return sum(rollout.trained_tokens for rollout in scored.group.rollouts)


def trained_lags(groups: Sequence[ScoredGroup], *, version: int, bound: int) -> NDArray[np.int32]:
    """int32 [tokens]: the lag of each sampled token within the bound, of rollouts that have a score."""
    found = [
        lags(rollout, version)[fresh(rollout, version, bound) & rollout.trained_mask]
        for scored in groups
        for rollout, _ in scored_rollouts(scored)
    ]
    return np.concatenate([np.zeros(0, dtype=np.int32), *found])


def length_metrics(groups: Sequence[ScoredGroup], *, version: int, bound: int) -> dict[str, float]:
    """`trained_length_*`: sampled tokens within the bound, of rollouts that have any (mean, 95th percentile, most)."""
    trained = [
        int((fresh(rollout, version, bound) & rollout.trained_mask).sum())
        for scored in groups
        for rollout, _ in scored_rollouts(scored)
    ]
    return statistics("trained_length", [length for length in trained if length])


def toll(
    groups: Sequence[ScoredGroup], stale: Sequence[Sequence[int]], *, version: int, bound: int
) -> dict[str, float]:
    """The cost of the bound for a step: of its batch, and of the groups dropped as `stale` on the way to it.

    `groups_stale`: groups dropped, or with a masked token. `stale_tokens_share`: their dropped or masked tokens, as a
    share of all that arrived. `arrived_length_*`: rollouts as they were generated.
    """
    arrived = [length for scored in groups for length in lengths_of(scored)]
    dropped = [length for lengths in stale for length in lengths]
    masked = [_masked(scored, version, bound) for scored in groups]
    total = sum(arrived) + sum(dropped)
    return {
        "groups_stale": len(stale) + sum(tokens > 0 for tokens in masked),
        "stale_tokens_share": (sum(dropped) + sum(masked)) / total if total else 0.0,
        **statistics("arrived_length", arrived + dropped),
    }


def _masked(scored: ScoredGroup, version: int, bound: int) -> int:
    stale = [~fresh(rollout, version, bound) & rollout.trained_mask for rollout, _ in scored_rollouts(scored)]
    return sum(int(tokens.sum()) for tokens in stale)


def statistics(name: str, counts: Sequence[int] | NDArray[np.int32]) -> dict[str, float]:
    """Mean, 95th percentile and maximum; 0 of no counts."""
    found = np.asarray(counts, dtype=np.int64)
    if not len(found):
        return {f"{name}_{what}": 0.0 for what in ("mean", "p95", "max")}
    return {
        f"{name}_mean": float(found.mean()),
        f"{name}_p95": float(np.quantile(found, 0.95)),
        f"{name}_max": int(found.max()),
    }
