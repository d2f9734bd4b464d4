"""Stream messages as frozen dataclasses: what the services work with.

Axes: prompt = tokens of the prompt, completion = sampled tokens (stop token included). Bad values are refused at
construction with a `ContractError`, so whoever holds one of these may trust it.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wire.errors import ContractError

SCHEMA_VERSION = 1

TokenIds = NDArray[np.int32]
Logprobs = NDArray[np.float32]


class Purpose(StrEnum):
    """What a group is for: training groups use credit and the journal, evaluation groups neither."""

    TRAIN = "train"
    EVAL = "eval"


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    LENGTH = "length"


class DropReason(StrEnum):
    """Why a group was never trained; also the closed label set of the drop counters."""

    STALE = "stale"
    POISON = "poison"
    SCORER_FAILED = "scorer_failed"
    ROLLOUT_FAILED = "rollout_failed"
    CRASH_LOOP = "crash_loop"
    UNVERIFIED_WEIGHTS = "unverified_weights"
    RUN_ENDED = "run_ended"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PolicyVersion:
    """`incarnation.version`: version v is the weights after v steps, in one life of the trainer."""

    incarnation: int
    version: int

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.version}"

    @classmethod
    def parse(cls, text: str) -> "PolicyVersion":
        """Reads `incarnation.version`; raises ContractError (`bad_version`) for anything else."""
        left, dot, right = text.partition(".")
        if not (dot and left.isdecimal() and right.isdecimal()):
            raise ContractError("bad_version", f"{text!r} is not of the form incarnation.version")
        return cls(incarnation=int(left), version=int(right))


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What every stream message carries beside its payload."""

    run_id: str
    purpose: Purpose
    group_index: int
    group_id: str
    attempt: int = 0
    traceparent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a completion is sampled. `top_k = 0` and `top_p = 1` are off; `seed` is the run's."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_tokens: int = 128
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0
    greedy: bool = False
    forced_lengths: tuple[int, ...] = ()
    """Benchmarks only: rollout i ends with a forced stop token as token number forced_lengths[i], never before."""

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ContractError("bad_sampling", f"temperature is {self.temperature}, must be above 0")
        if not 0 < self.top_p <= 1:
            raise ContractError("bad_sampling", f"top_p is {self.top_p}, must be in (0, 1]")
        if self.top_k < 0 or self.max_tokens < 1:
            raise ContractError("bad_sampling", f"top_k {self.top_k} or max_tokens {self.max_tokens} out of range")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptGroup:
    """One prompt and how many rollouts of it are wanted."""

    sample_id: str
    token_ids: TokenIds
    """int32 [prompt]"""
    group_size: int
    sampling: Sampling
    min_version: int = 0
    """Version (number of steps) below which a replica hands the prompt back."""
    columns: dict[str, Any] = field(default_factory=dict)
    """The data row's other columns: what a scorer may see. JSON values only."""
    eval_version: int = 0
    text: str = ""

    def __post_init__(self) -> None:
        _check_ids("prompt", self.token_ids)
        if self.group_size < 1:
            raise ContractError("bad_group_size", f"group_size is {self.group_size}, must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpan:
    """Tokens [start, end) of a completion were sampled under `version`, whose weights have `weights_digest`."""

    start: int
    end: int
    version: PolicyVersion
    weights_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One completion with the logprobs of its tokens under the policy that sampled them."""

    rollout_id: str
    token_ids: TokenIds
    """int32 [completion]"""
    logprobs: Logprobs
    """float32 [completion], nats, temperature applied"""
    finish_reason: FinishReason
    spans: tuple[VersionSpan, ...]
    text: str = ""

    def __post_init__(self) -> None:
        _check_ids("completion", self.token_ids)
        if self.logprobs.dtype != np.float32 or self.logprobs.shape != self.token_ids.shape:
            raise ContractError(
                "length_mismatch", f"{self.rollout_id}: {len(self.token_ids)} tokens, {len(self.logprobs)} logprobs"
            )
        if not np.isfinite(self.logprobs).all() or (self.logprobs > 1e-3).any():
            raise ContractError("bad_logprob", f"{self.rollout_id}: a logprob is not finite or above 0")
        ends = [0, *(span.end for span in self.spans)]
        starts = [*(span.start for span in self.spans), len(self.token_ids)]
        if not self.spans or ends != starts or any(span.end <= span.start for span in self.spans):
            raise ContractError("bad_spans", f"{self.rollout_id}: version spans do not cover the completion")

    @property
    def min_version(self) -> int:
        """Lowest version in the spans: the age of the oldest token."""
        return min(span.version.version for span in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """All rollouts of one prompt."""

    prompt: PromptGroup
    rollouts: tuple[Rollout, ...]
    replica_id: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if len(self.rollouts) != self.prompt.group_size:
            raise ContractError(
                "bad_group_size", f"{len(self.rollouts)} rollouts, {self.prompt.group_size} were asked for"
            )

    @property
    def min_version(self) -> int:
        """Lowest version of any token of the group."""
        return min(rollout.min_version for rollout in self.rollouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The reward of one rollout and what it was made of."""

    rollout_id: str
    value: float
    components: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) for value in (self.value, *self.components.values())):
            raise ContractError("bad_score", f"{self.rollout_id}: a score is not finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """A group with one score a rollout, in the rollouts' order."""

    group: RolloutGroup
    scores: tuple[Score, ...]
    scorer_version: str = ""

    def __post_init__(self) -> None:
        wanted = [rollout.rollout_id for rollout in self.group.rollouts]
        if [score.rollout_id for score in self.scores] != wanted:
            raise ContractError("score_mismatch", f"scores are not those of {wanted}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """The end of a group that will never be trained."""

    reason: DropReason
    detail: str = ""
    service: str = ""


Body = PromptGroup | RolloutGroup | ScoredGroup | Tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What one stream entry holds: a header and one body."""

    header: Header
    body: Body


def _check_ids(what: str, token_ids: TokenIds) -> None:
    if token_ids.dtype != np.int32 or token_ids.ndim != 1:
        raise ContractError("bad_tokens", f"{what} ids must be int32 [tokens], not {token_ids.dtype} {token_ids.shape}")
    if not len(token_ids):
        raise ContractError("empty", f"{what} has no tokens")
    if token_ids.min() < 0:
        raise ContractError("bad_tokens", f"{what} has a negative token id")
