"""`/api/rollouts`: the list of rollouts, and one group token by token."""

from pydantic import JsonValue

from headrace.wire.api.episodes import EpisodeView
from headrace.wire.api.model import ApiModel


class RolloutRow(ApiModel):
    """One rollout in the list."""

    step: int
    group_index: int
    group_id: str
    rollout_index: int
    reward: float | None
    """None: no scorer could score it."""
    advantage: float | None
    """None: it was not trained on."""
    finish_reason: str
    tokens: int
    min_version: int
    max_version: int
    """Oldest and newest version that sampled its tokens."""
    replica_id: str
    set: str
    """The evaluation set; empty in training."""
    prompt: str
    """First characters; where all prompts of the step begin alike, those behind what they share."""
    completion: str
    """First characters."""
    answer: str
    """The row's reference answer, its first characters; empty without one."""
    component: float | None = None
    """Its score of the component that was asked for; None if that abstained."""


class DamagedStep(ApiModel):
    """A file of rollouts that cannot be read."""

    step: int
    error: str


class RolloutPage(ApiModel):
    """Answer of `/api/rollouts`."""

    total: int
    """Rollouts that match."""
    rows: tuple[RolloutRow, ...]
    partial: bool
    """The search through texts goes on when the request is repeated."""
    reading: bool
    """More files of the run are still to be read."""
    finish_reasons: tuple[str, ...]
    replicas: tuple[str, ...]
    sets: tuple[str, ...]
    components: tuple[str, ...]
    """The components of the newest step's rewards."""
    damaged: tuple[DamagedStep, ...]


class TokenView(ApiModel):
    """One token of a completion."""

    id: int
    text: str | None
    """None without a tokenizer."""
    logprob: float | None
    """None: it was not sampled."""
    advantage: float | None


class VersionSpanView(ApiModel):
    """Tokens [start, end) that one version sampled."""

    start: int
    end: int
    version: str
    """`incarnation.version`."""
    weights_digest: str


class RolloutView(ApiModel):
    """One rollout of a group, whole. Fields are None where an older file lacks them."""

    rollout_index: int | None
    completion: str
    answer_start: int | None
    """Characters of the completion that are thoughts; -1: a thought never closed, there is no answer."""
    reward: float | None
    advantage: float | None
    token_score: float | None
    """Sum of its token scores."""
    components: dict[str, float | None]
    """Scorer -> its score."""
    reason: str
    """What a judge wrote."""
    scorers: dict[str, str]
    """Scorer -> its identity."""
    finish_reason: str
    num_tokens: int | None
    trained_tokens: int | None
    min_version: int | None
    max_version: int | None
    replica_id: str
    spans: tuple[VersionSpanView, ...]
    tokens: tuple[TokenView, ...]
    episode: EpisodeView | None = None
    """The conversation, where an environment was played."""


class GroupView(ApiModel):
    """Answer of `/api/rollouts/{step}/{group_index}`."""

    step: int
    group_index: int | None
    group_id: str
    sample_id: str
    prompt: str
    answer: str
    """The row's reference answer; empty without one."""
    columns: dict[str, JsonValue]
    """The row's columns, bounded: a text that is cut ends in `...`."""
    trace_id: str
    rollouts: tuple[RolloutView, ...]
