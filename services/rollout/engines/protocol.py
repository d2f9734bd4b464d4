"""What the rollout service asks of an engine. Nothing here imports torch.

An engine decodes groups with the weights it has installed. New weights come in acts: `prepare` readies the engine,
`receive` brings them, `install` makes them whole between two decode steps, `checksums` and `score` prove them, `resume`
goes on; `discard` ends it at any point before. An engine that stages weights beside the running ones decodes on until
`install`; one that receives in place (`in_place`) is paused from `prepare` to `resume`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from prometheus_client.metrics_core import Metric

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
    chat: bool = False
    """Not for training: somebody waits for it, so it goes before groups that wait, and needs no logprobs."""

    @property
    def greedy_from(self) -> int:
        """From this rollout on (0 to their number) the group is decoded greedily."""
        return 0 if self.sampling.greedy else max(0, len(self.seeds) - self.sampling.greedy_last)


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
class Begun:
    """A running group so far."""

    oldest: int
    """Version of its oldest sampled token."""
    lengths: tuple[int, ...]
    """Tokens sampled of each rollout."""


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

    def plus(self, later: "EngineStats") -> "EngineStats":
        """Counters of both; what is held now is the later's."""
        return EngineStats(
            groups=later.groups,
            rollouts=later.rollouts,
            generated_tokens=self.generated_tokens + later.generated_tokens,
            prompt_tokens=self.prompt_tokens + later.prompt_tokens,
            recomputed_tokens=self.recomputed_tokens + later.recomputed_tokens,
            decode_seconds=self.decode_seconds + later.decode_seconds,
            busy_seconds=self.busy_seconds + later.busy_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """How weights can reach an engine; the disk always can. See `Routes` in proto/wire/v1/common.proto."""

    backends: tuple[str, ...] = ()
    """Collective backends, the best first."""
    ranks: int = 1
    """Of the collective group that it takes."""
    nccl_version: str = ""
    devices: tuple[str, ...] = ()
    """Its accelerators, by names that are unique over all machines."""


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

    @property
    def routes(self) -> Routes:
        """How weights can reach it."""
        ...

    @property
    def in_place(self) -> bool:
        """From the beginning of `receive` on the old weights are gone, whatever becomes of the new ones."""
        ...

    @property
    def checksum_format(self) -> str:
        """How `checksums` names and hashes tensors; empty where the digests of the buckets say it all."""
        ...

    @property
    def loaded_checksums(self) -> Mapping[str, str]:
        """As `checksums`, of what was loaded from `model.path`, before the first update; empty: not known."""
        ...

    @property
    def first_verify_s(self) -> float:
        """Seconds that its first verification may take: it compiles kernels. 0 = no more than any other."""
        ...

    async def generate(self, request: GenerateRequest) -> tuple[Completion, ...]:
        """Waits for free rows, then for the group's last token; AbandonedError if the engine gives the group up.

        Raises ContractError for what no engine of this size can ever do (a prompt as long as the context).
        """
        ...

    async def begun(self, group_id: str) -> Begun | None:
        """How far a running group is; None where no token of it is sampled, or that is not known before its end."""
        ...

    async def prepare(self, version: PolicyVersion, plan: common_pb2.WeightPlan, timeout_s: float) -> None:
        """Gets ready to receive; an `in_place` engine pauses (and drains first, if so told)."""
        ...

    async def receive(
        self, plan: common_pb2.WeightPlan, source: rollout_pb2.ReceiveWeightsRequest, timeout_s: float
    ) -> list[str]:
        """Brings weights in from `source`; returns the digest of each bucket as it arrived.

        Empty for an engine that cannot tell (it has a `checksum_format`). Raises by the deadline, come what may.
        """
        ...

    async def install(self, version: PolicyVersion, weights_digest: str, timeout_s: float) -> None:
        """Makes the received weights the engine's own and drops keys and values of the old ones.

        Nothing is decoded until `score` or `resume`.
        """
        ...

    async def checksums(self, timeout_s: float) -> Mapping[str, str]:
        """Hash of each tensor in place, in the engine's `checksum_format`; empty if it has none."""
        ...

    async def discard(self) -> None:
        """Ends an update before `resume`: forgets staged weights and goes on decoding with those in place."""
        ...

    async def score(self, token_ids: TokenIds, timeout_s: float) -> Logprobs:
        """float32 [seq - 1]: logprob of token t+1 given tokens up to t, at temperature 1. Works after `install`."""
        ...

    async def resume(self, timeout_s: float) -> None:
        """Goes on decoding. Idempotent."""
        ...

    async def abandon(self, reason: str, timeout_s: float) -> None:
        """Gives all groups up: their `generate` raises AbandonedError."""
        ...

    async def sleep(self, timeout_s: float) -> None:
        """Gives the memory of weights and cache back to the device; idempotent. No group may be running.

        After it nothing works but `wake`. Raises TransientError if it cannot: what is left in place is unknown.
        """
        ...

    async def wake(self, timeout_s: float) -> None:
        """Takes the memory again; idempotent, and nothing for an engine that is awake.

        The weights are nobody's until the next `install`.
        """
        ...

    def stats(self) -> EngineStats:
        """A recent look at the counters; never waits."""
        ...

    async def own_metrics(self, timeout_s: float) -> Sequence[Metric]:
        """What it tells Prometheus of itself; empty for an engine that is part of this process."""
        ...

    async def failed(self) -> None:
        """Returns never; raises when the engine has broken down and the process must end."""
        ...

    async def close(self, timeout_s: float) -> None:
        """Ends the engine at once; running groups are abandoned."""
        ...
