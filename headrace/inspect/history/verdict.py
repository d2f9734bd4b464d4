"""The result of the history checker."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The run's bound on the staleness of trained tokens."""

    versions: int
    """`run.max_staleness`"""
    policy: str
    """`run.stale`"""
    batch_groups: int = 0
    """`batch.groups`"""

    @property
    def is_ordered(self) -> bool:
        """Whether each batch takes the lowest groups without an end."""
        return self.versions == 0 or self.policy == "wait"

    @property
    def is_late(self) -> bool:
        """Whether credit alone bounds the age of what is trained."""
        return self.versions > 0 and self.policy == "late"

    @property
    def masks(self) -> bool:
        """Whether a batch may contain tokens over the bound, which are not trained."""
        return self.versions > 0 and self.policy == "mask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """How the issued groups ended."""

    issued: int
    trained: int
    dropped: dict[str, int]
    """Reason -> how many."""
    open: int
    """Without an end: the run was stopped before them."""

    def in_words(self) -> str:
        """Such as `40 groups issued, 32 trained, 6 dropped (5 uninformative, 1 stale), 2 open`."""
        ranked = sorted(self.dropped.items(), key=lambda each: (-each[1], each[0]))
        reasons = ", ".join(f"{count} {reason}" for reason, count in ranked)
        dropped = f"{sum(self.dropped.values())} dropped" + (f" ({reasons})" if reasons else "")
        return f"{self.issued} groups issued, {self.trained} trained, {dropped}, {self.open} open"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryVerdict:
    """The result of the check; in order if there is no problem."""

    stage: str = "rl"
    """`run.stage`"""
    steps: int
    groups: Groups
    weights_sha256: str | None
    """Weights hash of the exported model, else of the newest checkpoint; None if there is neither."""
    unproven_steps: int
    """Steps whose rollouts are gone (a checkpoint covers their payload, newer steps have replaced their file in
    `RUN/rollouts/`): the versions they were sampled under are no longer known."""
    receipt: str | None = None
    """The newest receipt of the run; None for one without."""
    receipt_step: int | None = None
    notes: tuple[str, ...] = ()
    """What a receipt that was asked about proves, and kept files that are gone."""
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """No problem was found."""
        return not self.problems

    def in_words(self) -> str:
        """The result in one line."""
        of = f" of {self.stage}" if self.stage != "rl" else f"; {self.groups.in_words()}"
        said = f"{'in order' if self.ok else 'NOT in order'}: {self.steps} steps{of}"
        if self.unproven_steps:
            said += f"; the rollouts of {self.unproven_steps} steps are gone: their staleness can no longer be checked"
        return said

    def as_json(self) -> str:
        """The last line of `headrace check --json`."""
        return json.dumps({"ok": self.ok, **asdict(self)})
