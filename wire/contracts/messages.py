"""Stream messages as frozen dataclasses, the form in which services handle them.

Axes: prompt = tokens of the prompt, completion = sampled tokens (stop token included). The constructors
reject bad values with a `ContractError`, so an instance is always valid.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from headrace.wire.contracts.checks import Logprobs as Logprobs
from headrace.wire.contracts.checks import TokenIds as TokenIds
from headrace.wire.contracts.checks import TokenMask as TokenMask
from headrace.wire.contracts.checks import check_ids, check_mask, check_sampled
from headrace.wire.contracts.scores import Score
from headrace.wire.errors import ContractError

SCHEMA_VERSION = 1


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
    UNINFORMATIVE = "uninformative"
    """Dynamic sampling (DAPO): all its trained rollouts have one score, so no advantage differs from 0."""
    POISON = "poison"
    SCORER_FAILED = "scorer_failed"
    ABSTAINED = "abstained"
    """Fewer than two of its trained rollouts (or not its baseline) could be scored."""
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
    issued_at: float = 0.0
    """Unix seconds; 0 = unknown. For people: nothing is decided by it."""


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
    greedy_last: int = 0
    """The last so many rollouts of the group are decoded greedily: baselines (ReMax), scored and not trained."""

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ContractError("bad_sampling", f"temperature is {self.temperature}, must be above 0")
        if not 0 < self.top_p <= 1:
            raise ContractError("bad_sampling", f"top_p is {self.top_p}, must be in (0, 1]")
        if self.top_k < 0 or self.max_tokens < 1:
            raise ContractError("bad_sampling", f"top_k {self.top_k} or max_tokens {self.max_tokens} out of range")
        if self.greedy_last < 0:
            raise ContractError("bad_sampling", f"greedy_last is {self.greedy_last}, must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptGroup:
    """One prompt and how many rollouts of it are wanted.

    A question of two tokens, four answers of at most 8 tokens to train on and one greedy baseline:

    >>> question = np.array([17, 25], np.int32)
    >>> prompt = PromptGroup(
    ...     sample_id="row-3", token_ids=question, group_size=5,
    ...     sampling=Sampling(max_tokens=8, greedy_last=1), columns={"answer": "42"},
    ... )
    >>> prompt.trained
    4
    """

    sample_id: str
    token_ids: TokenIds
    """int32 [prompt]"""
    group_size: int
    """All rollouts, greedy baselines included."""
    sampling: Sampling
    min_version: int = 0
    """Version (number of steps) below which a replica hands the prompt back."""
    columns: dict[str, Any] = field(default_factory=dict)
    """The data row's other columns: what a scorer may see. JSON values only."""
    eval_version: int = 0
    text: str = ""

    def __post_init__(self) -> None:
        check_ids("prompt", self.token_ids)
        if self.group_size < 1:
            raise ContractError("bad_group_size", f"group_size is {self.group_size}, must be at least 1")
        if self.trained < 1:
            raise ContractError(
                "bad_group_size",
                f"{self.sampling.greedy_last} of {self.group_size} rollouts are baselines, all of them",
            )

    @property
    def trained(self) -> int:
        """Rollouts that are trained: the first so many of the group. The others are greedy baselines."""
        return self.group_size - self.sampling.greedy_last


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpan:
    """Tokens [start, end) of a completion were sampled under `version`, whose weights have `weights_digest`."""

    start: int
    end: int
    version: PolicyVersion
    weights_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One completion with the logprobs of its tokens under the policy that sampled them.

    In a conversation of several turns the completion is all that follows the first prompt; what others wrote in it
    (tools, the user) is masked: context of the later turns, never trained.

    Three tokens, the last of them sampled after new weights had arrived:

    >>> old, new = PolicyVersion(incarnation=1, version=6), PolicyVersion(incarnation=1, version=7)
    >>> rollout = Rollout(
    ...     rollout_id="g12/0", token_ids=np.array([4, 2, 0], np.int32),
    ...     logprobs=np.array([-0.1, -0.7, -0.05], np.float32), finish_reason=FinishReason.STOP,
    ...     spans=(VersionSpan(start=0, end=2, version=old), VersionSpan(start=2, end=3, version=new)),
    ... )
    >>> rollout.trained_tokens, rollout.min_version
    (3, 6)
    """

    rollout_id: str
    token_ids: TokenIds
    """int32 [completion]"""
    logprobs: Logprobs
    """float32 [completion], nats, temperature applied; 0 where masked"""
    finish_reason: FinishReason
    spans: tuple[VersionSpan, ...]
    text: str = ""
    loss_mask: TokenMask | None = None
    """bool [completion]: True = sampled by the policy. None = all are."""

    def __post_init__(self) -> None:
        check_ids("completion", self.token_ids)
        check_sampled(self.rollout_id, self.token_ids, self.logprobs, self.spans)
        if self.loss_mask is not None:
            check_mask(self.rollout_id, self.loss_mask, self.logprobs)

    @property
    def trained_mask(self) -> TokenMask:
        """Which tokens the policy sampled, bool [completion]."""
        return np.ones(len(self.token_ids), np.bool_) if self.loss_mask is None else self.loss_mask

    @property
    def trained_tokens(self) -> int:
        """How many tokens the policy sampled."""
        return len(self.token_ids) if self.loss_mask is None else int(self.loss_mask.sum())

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
                "bad_group_size", f"{len(self.rollouts)} rollouts, {self.prompt.group_size} were requested"
            )

    @property
    def min_version(self) -> int:
        """Lowest version of any token of the group."""
        return min(rollout.min_version for rollout in self.rollouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """A group with one score a rollout, in the rollouts' order.

    Two rollouts, of which the scorer could judge one; a single score gives no advantage, so the group is not trained:

    >>> version = PolicyVersion(incarnation=1, version=6)
    >>> rollouts = tuple(
    ...     Rollout(
    ...         rollout_id=name, token_ids=np.array([4], np.int32), logprobs=np.array([-0.1], np.float32),
    ...         finish_reason=FinishReason.STOP, spans=(VersionSpan(start=0, end=1, version=version),),
    ...     )
    ...     for name in ("g12/0", "g12/1")
    ... )
    >>> prompt = PromptGroup(sample_id="row-3", token_ids=np.array([17], np.int32), group_size=2, sampling=Sampling())
    >>> scores = (Score(rollout_id="g12/0", value=1.0), Score(rollout_id="g12/1", value=None))
    >>> ScoredGroup(group=RolloutGroup(prompt=prompt, rollouts=rollouts), scores=scores).is_trainable
    False
    """

    group: RolloutGroup
    scores: tuple[Score, ...]
    scorer_version: str = ""
    """Version of the rubric: changes with its config and with the version of any of its scorers."""
    versions: dict[str, str] = field(default_factory=dict)
    """Version of each scorer, by its name: its code, weights or prompt."""

    def __post_init__(self) -> None:
        wanted = [rollout.rollout_id for rollout in self.group.rollouts]
        if [score.rollout_id for score in self.scores] != wanted:
            raise ContractError("score_mismatch", f"scores are not those of {wanted}")
        for rollout, score in zip(self.group.rollouts, self.scores, strict=True):
            _check_token_scores(rollout, score)

    @property
    def is_trainable(self) -> bool:
        """Whether enough was scored: two trained rollouts (one, if no more were asked for), and every baseline."""
        trained = self.group.prompt.trained
        scored = sum(score.value is not None for score in self.scores[:trained])
        return scored >= min(2, trained) and all(score.value is not None for score in self.scores[trained:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """The end of a group that will never be trained."""

    reason: DropReason
    detail: str = ""
    service: str = ""
    lengths: tuple[int, ...] = ()
    """Tokens generated of each rollout when it was given up; empty = not known."""


Body = PromptGroup | RolloutGroup | ScoredGroup | Tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What one stream entry holds: a header and one body."""

    header: Header
    body: Body


def _check_token_scores(rollout: Rollout, score: Score) -> None:
    if score.token_scores is None:
        return
    if score.token_scores.shape != rollout.token_ids.shape:
        raise ContractError(
            "length_mismatch",
            f"{rollout.rollout_id}: {len(rollout.token_ids)} tokens, {len(score.token_scores)} token scores",
        )
    if np.nan_to_num(score.token_scores[~rollout.trained_mask]).any():
        raise ContractError(
            "bad_score", f"{rollout.rollout_id}: a masked token has a score, but the policy did not sample it"
        )
