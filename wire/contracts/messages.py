"""Stream messages as frozen dataclasses, the form in which services handle them.

Axes: prompt = tokens of the prompt, completion = sampled tokens (stop token included). The constructors
reject bad values with a `ContractError`, so an instance is always valid.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headrace.wire.contracts.checks import Logprobs as Logprobs
from headrace.wire.contracts.checks import TokenIds as TokenIds
from headrace.wire.contracts.checks import TokenMask as TokenMask
from headrace.wire.contracts.checks import check_ids, check_mask, check_sampled
from headrace.wire.contracts.columns import ColumnFile, IdLists
from headrace.wire.contracts.episodes import EnvironmentTask, Episode, Segment
from headrace.wire.contracts.reasons import DropReason as DropReason
from headrace.wire.contracts.reasons import FinishReason as FinishReason
from headrace.wire.contracts.reasons import Purpose as Purpose
from headrace.wire.contracts.scores import Score
from headrace.wire.contracts.versions import PolicyVersion as PolicyVersion
from headrace.wire.contracts.versions import VersionSpan as VersionSpan
from headrace.wire.errors import ContractError

SCHEMA_VERSION = 1
KEPT_IDS = 512
"""Most ids that a token is drawn from where `top_p` or `min_p` cuts and `top_k` is off: 2 KiB a token at most."""


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
    """How a completion is sampled; `seed` is the run's. `top_k = 0`, `top_p = 1` and `min_p = 0` are off.

    The order is that of SGLang's PyTorch sampler: a token is kept if it is among the `top_k` likeliest, if those before
    it have at most `top_p` of the whole mass, and if it has at least `min_p` of the likeliest one's. With any of the
    three on, at most `most_kept` ids are left, and logprobs are those of the distribution over them.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_tokens: int = 128
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0
    greedy: bool = False
    forced_lengths: tuple[int, ...] = ()
    """Benchmarks only: rollout i ends with a forced stop token as token number forced_lengths[i], never before."""
    greedy_last: int = 0
    """The last so many rollouts of the group are decoded greedily: baselines (ReMax), scored and not trained."""
    keeps_ids: bool = False
    """The engine returns the ids that each sampled token was drawn from."""

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ContractError("bad_sampling", f"temperature is {self.temperature}, must be above 0")
        if not 0 < self.top_p <= 1:
            raise ContractError("bad_sampling", f"top_p is {self.top_p}, must be in (0, 1]")
        if not 0 <= self.min_p <= 1:
            raise ContractError("bad_sampling", f"min_p is {self.min_p}, must be in [0, 1]")
        if self.top_k < 0 or self.max_tokens < 1:
            raise ContractError("bad_sampling", f"top_k {self.top_k} or max_tokens {self.max_tokens} out of range")
        if self.greedy_last < 0:
            raise ContractError("bad_sampling", f"greedy_last is {self.greedy_last}, must be 0 or more")

    @property
    def is_cut(self) -> bool:
        """Whether tokens are drawn from a cut-off distribution."""
        return not self.greedy and (self.top_k > 0 or self.top_p < 1 or self.min_p > 0)

    @property
    def most_kept(self) -> int:
        """Most ids that a token of a cut-off distribution is drawn from."""
        return self.top_k or KEPT_IDS


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
    """int32 [prompt]; empty for an environment, whose episodes have contexts of their own."""
    group_size: int
    """All rollouts, greedy baselines included."""
    sampling: Sampling
    min_version: int = 0
    """Version (number of steps) below which a replica hands the prompt back."""
    columns: dict[str, Any] = field(default_factory=dict)
    """The data row's other columns: what a scorer may see. JSON values only."""
    eval_version: int = 0
    text: str = ""
    environment: EnvironmentTask | None = None
    """What is played; None: the prompt is completed."""
    task: str = ""
    """The task of the reward whose scorers judge it; empty = by the row's column."""

    def __post_init__(self) -> None:
        if self.environment is None:
            check_ids("prompt", self.token_ids)
        elif len(self.token_ids):
            raise ContractError("bad_environment", f"{self.sample_id}: a task of an environment has no prompt of ids")
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
class Rollout:
    """One completion with the logprobs of its tokens under the policy that sampled them.

    In an episode of several turns the completion is all that follows the first context; what others wrote in it
    (tools, the user) is masked: context of the later turns, never trained. Segments divide it, see `Episode`.

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
    """float32 [completion], nats, temperature and cut-off applied; 0 where masked"""
    finish_reason: FinishReason
    spans: tuple[VersionSpan, ...]
    text: str = ""
    loss_mask: TokenMask | None = None
    """bool [completion]: True = sampled by the policy. None = all are."""
    episode: Episode | None = None
    """Segments, turns and reward in an environment; None: one completion of the group's prompt."""
    kept: IdLists | None = field(default=None, metadata={"aside": True})
    """The ids that each sampled token was drawn from; no message has them, see `RolloutGroup.kept`."""

    def __post_init__(self) -> None:
        if self.episode is None and self.finish_reason not in (FinishReason.STOP, FinishReason.LENGTH):
            raise ContractError("bad_finish_reason", f"{self.rollout_id}: {self.finish_reason} without an episode")
        if self.episode is not None and not len(self.token_ids):
            self._check_empty(self.episode)
            return
        check_ids("completion", self.token_ids)
        check_sampled(self.rollout_id, self.token_ids, self.logprobs, self.spans)
        if self.kept is not None:
            self.kept.check(self.rollout_id, self.token_ids, self.trained_mask)
        if self.loss_mask is not None:
            check_mask(self.rollout_id, self.loss_mask, self.logprobs)
        if self.episode is not None:
            self.episode.check(self.rollout_id, self.trained_mask)

    def _check_empty(self, episode: Episode) -> None:
        """An episode that ended before its first turn did: by an error, or because nothing was left of a limit."""
        if self.finish_reason is FinishReason.STOP:
            raise ContractError("empty", f"{self.rollout_id}: it has no tokens, and yet ended by a stop token")
        if len(self.logprobs) or self.spans or self.loss_mask is not None or episode.segments or episode.turn_ends:
            raise ContractError("length_mismatch", f"{self.rollout_id}: it has no tokens, but logprobs, spans or turns")

    @property
    def trained_mask(self) -> TokenMask:
        """Which tokens the policy sampled, bool [completion]."""
        return np.ones(len(self.token_ids), np.bool_) if self.loss_mask is None else self.loss_mask

    @property
    def trained_tokens(self) -> int:
        """How many tokens the policy sampled."""
        return len(self.token_ids) if self.loss_mask is None else int(self.loss_mask.sum())

    @property
    def min_version(self) -> int | None:
        """Lowest version in the spans: the age of the oldest token; None without tokens."""
        return min((span.version.version for span in self.spans), default=None)

    def segments(self, prompt: PromptGroup) -> tuple[Segment, ...]:
        """The sequences that the engine saw; a completion has one, after the group's prompt."""
        if self.episode is not None:
            return self.episode.segments
        return (Segment(start=0, context_ids=prompt.token_ids),)

    @property
    def must_abstain(self) -> bool:
        """Whether no score may be given: it ended by an error or by time, or has no tokens."""
        return self.finish_reason.abstains or not len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """All rollouts of one prompt."""

    prompt: PromptGroup
    rollouts: tuple[Rollout, ...]
    replica_id: str = ""
    seconds: float = 0.0
    kept: ColumnFile | None = None
    """Where the ids lie that the sampled tokens were drawn from, if the sampling keeps them."""

    def __post_init__(self) -> None:
        if len(self.rollouts) != self.prompt.group_size:
            raise ContractError(
                "bad_group_size", f"{len(self.rollouts)} rollouts, {self.prompt.group_size} were requested"
            )
        if self.prompt.sampling.keeps_ids and self.kept is None:
            raise ContractError("no_ids", f"{self.prompt.sample_id}: a cut-off draw, and no file with the ids it left")
        played = self.prompt.environment is not None
        if any((rollout.episode is not None) != played for rollout in self.rollouts):
            raise ContractError("bad_environment", "a group's rollouts are episodes if it has an environment, else not")

    @property
    def min_version(self) -> int | None:
        """Lowest version of any token of the group; None if no rollout has tokens."""
        found = [rollout.min_version for rollout in self.rollouts]
        return min((version for version in found if version is not None), default=None)


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
            if rollout.must_abstain and score.value is not None:
                raise ContractError("bad_score", f"{rollout.rollout_id}: ended by {rollout.finish_reason}, and scored")
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
