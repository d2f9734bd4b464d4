"""What the rollout service asks of an engine. Nothing here imports torch.

An engine decodes groups with the weights it has installed. New weights arrive in three acts: `receive` stages them
beside the running ones, `install` puts them in place between two decode steps, `discard` forgets staged ones.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from wire.contracts import FinishReason, PolicyVersion, Sampling, VersionSpan
from wire.contracts.messages import Logprobs, TokenIds
from wire.errors import HeadraceError
from wire.v1 import common_pb2, rollout_pb2


class InFlight(StrEnum):
    """What happens to running rollouts when new weights are installed."""

    RETRACT = "retract"
    """Their prefixes are recomputed under the new weights; tokens and logprobs sampled so far are kept."""
    DRAIN = "drain"
    """They end under the old weights first."""
    IN_PLACE = "in_place"
    """They go on with the keys and values of the old weights."""


class AbandonedError(HeadraceError):
    """The engine gave a running group up: its prompt should be handed back, it is not at fault."""


class GenerationError(HeadraceError):
    """The model's numbers are not finite: no rollout can be sampled from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One prompt and one seed for each rollout of it."""

    group_id: str
    token_ids: TokenIds
    """int32 [prompt]"""
    seeds: tuple[int, ...]
    """63 bits each; on a deterministic engine a seed gives one rollout, for ever."""
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One rollout as the engine made it."""

    token_ids: TokenIds
    """int32 [completion], the stop token included"""
    logprobs: Logprobs
    """float32 [completion], nats: log softmax(logits / temperature) over the full vocabulary"""
    finish_reason: FinishReason
    spans: tuple[VersionSpan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Counters since the engine's start, and what it holds now."""

    groups: int
    """Running or waiting."""
    rollouts: int
    """Being decoded."""
    generated_tokens: int
    prompt_tokens: int
    """Computed in prefills: a group's prompt counts once."""
    recomputed_tokens: int
    """Computed again because new weights came in the middle."""
    decode_seconds: float
    busy_seconds: float


class Engine(Protocol):
    """One replica's engine, as the service's event loop sees it. Every wait has a deadline."""

    @property
    def name(self) -> str:
        """The word of `[rollout] engine`."""
        ...

    @property
    def dtype(self) -> str:
        """Of the weights: float32 or bfloat16."""
        ...

    async def generate(self, request: GenerateRequest) -> tuple[Completion, ...]:
        """Waits for free rows, then for the group's last token; AbandonedError if the engine gives the group up.

        Raises ContractError for what no engine of this size can ever do (a prompt as long as the context).
        """
        ...

    async def receive(
        self, plan: common_pb2.WeightPlan, source: rollout_pb2.ReceiveWeightsRequest, timeout_s: float
    ) -> list[str]:
        """Stages weights from `source` while the engine runs on; returns the digest of each bucket as it arrived."""
        ...

    async def install(self, version: PolicyVersion, weights_digest: str, timeout_s: float) -> None:
        """Puts the staged weights in place and stays paused until `resume`."""
        ...

    async def discard(self) -> None:
        """Forgets staged weights; those in place stay."""
        ...

    async def score(self, token_ids: TokenIds, timeout_s: float) -> Logprobs:
        """float32 [seq - 1]: logprob of token t+1 given tokens up to t, at temperature 1. Works while paused."""
        ...

    async def resume(self, timeout_s: float) -> None:
        """Goes on decoding."""
        ...

    async def abandon(self, reason: str, timeout_s: float) -> None:
        """Gives all groups up: their `generate` raises AbandonedError."""
        ...

    def stats(self) -> EngineStats:
        """A recent look at the counters; never waits."""
        ...

    async def failed(self) -> None:
        """Returns never; raises when the engine has broken down and the process must end."""
        ...

    async def close(self, timeout_s: float) -> None:
        """Ends the engine at once; running groups are abandoned."""
        ...
