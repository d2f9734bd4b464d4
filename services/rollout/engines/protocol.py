"""The interface between the rollout service and an engine. Imports no torch.

An engine decodes groups with its installed weights. An update has phases: `prepare` readies the engine, `receive`
transfers the weights, `install` switches to them between two decode steps, `checksums` and `score` verify them, and
`resume` continues decoding; `discard` ends the update at any earlier point. An engine that stages weights beside the
running ones decodes on until `install`; one that receives in place (`in_place`) is paused from `prepare` to `resume`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from prometheus_client.metrics_core import Metric

from headrace.wire.contracts import FinishReason, IdLists, PolicyVersion, Sampling, VersionSpan
from headrace.wire.contracts.messages import Logprobs, TokenIds
from headrace.wire.errors import HeadraceError
from headrace.wire.v1 import common_pb2, rollout_pb2


class InFlight(StrEnum):
    """What happens to running rollouts when new weights are installed."""

    RETRACT = "retract"
    """Their prefixes are recomputed under the new weights; tokens and logprobs sampled so far are kept."""
    DRAIN = "drain"
    """They are finished under the old weights first."""
    IN_PLACE = "in_place"
    """They continue with the keys and values computed by the old weights."""


class AbandonedError(HeadraceError):
    """The engine abandoned a running group: its prompt is not at fault and should be handed back."""


class GenerationError(HeadraceError):
    """No rollout can be sampled, such as when the model's outputs are not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One prompt, and one seed for each of its rollouts."""

    group_id: str
    token_ids: TokenIds
    """int32 [prompt]"""
    seeds: tuple[int, ...]
    """63 bits each; on a deterministic engine a seed always gives the same rollout."""
    sampling: Sampling
    chat: bool = False
    """Interactive, not for training: goes before waiting groups, and needs no logprobs."""

    @property
    def greedy_from(self) -> int:
        """Index from which on rollouts are decoded greedily; the number of rollouts if none is."""
        return 0 if self.sampling.greedy else max(0, len(self.seeds) - self.sampling.greedy_last)

    def keeps_ids(self, index: int) -> bool:
        """Whether rollout `index` comes with the ids that its tokens were drawn from."""
        return self.sampling.keeps_ids and index < self.greedy_from


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One rollout as the engine generated it."""

    token_ids: TokenIds
    """int32 [completion], the stop token included"""
    logprobs: Logprobs
    """float32 [completion], nats: log softmax(logits / temperature), over the ids that are left where the draw is cut
    off. SGLang's are over all ids where none are kept: evaluations and chats, of which nothing is trained"""
    finish_reason: FinishReason
    spans: tuple[VersionSpan, ...]
    cached_tokens: int | None = None
    """Tokens of the prompt whose keys and values the engine had kept; None = it does not report them."""
    kept: IdLists | None = None
    """The ids that each token was drawn from, if the request keeps them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Progress of a running group."""

    oldest: int
    """Version of its oldest sampled token."""
    lengths: tuple[int, ...]
    """Number of tokens sampled so far, for each rollout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Counters since the engine's start, and what it holds now."""

    groups: int
    """Groups running or waiting."""
    rollouts: int
    """Rollouts being decoded."""
    waiting: int
    """Rollouts that were given to `generate` and wait for a row."""
    generated_tokens: int
    prompt_tokens: int
    """Prompt tokens computed in prefills; a group's prompt counts once."""
    recomputed_tokens: int
    """Tokens computed again because the weights changed midway."""
    decode_seconds: float
    busy_seconds: float

    def plus(self, later: "EngineStats") -> "EngineStats":
        """The sum of both counters; current values are those of `later`."""
        return EngineStats(
            groups=later.groups,
            rollouts=later.rollouts,
            waiting=later.waiting,
            generated_tokens=self.generated_tokens + later.generated_tokens,
            prompt_tokens=self.prompt_tokens + later.prompt_tokens,
            recomputed_tokens=self.recomputed_tokens + later.recomputed_tokens,
            decode_seconds=self.decode_seconds + later.decode_seconds,
            busy_seconds=self.busy_seconds + later.busy_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Routes by which weights can reach an engine, besides the disk. See `Routes` in proto/wire/v1/common.proto."""

    backends: tuple[str, ...] = ()
    """Collective backends, best first."""
    ranks: int = 1
    """Number of ranks that the engine occupies in the collective group."""
    nccl_version: str = ""
    nccl_cumem: str = ""
    devices: tuple[str, ...] = ()
    """Names of its accelerators, unique across machines."""


class Engine(Protocol):
    """One replica's engine, as the service's event loop sees it. Every wait has a deadline."""

    @property
    def name(self) -> str:
        """The value of `[rollout] engine`."""
        ...

    @property
    def dtype(self) -> str:
        """Data type of the weights: float32 or bfloat16."""
        ...

    @property
    def routes(self) -> Routes:
        """Routes by which weights can reach the engine."""
        ...

    @property
    def in_place(self) -> bool:
        """Whether `receive` overwrites the old weights: they are lost as soon as it begins."""
        ...

    @property
    def context_length(self) -> int:
        """Tokens that a prompt and its rollout have room for together."""
        ...

    @property
    def rows(self) -> int:
        """Most rollouts that it decodes concurrently."""
        ...

    @property
    def checksum_format(self) -> str:
        """How `checksums` names and hashes tensors; empty if the digests of the buckets suffice."""
        ...

    @property
    def loaded_checksums(self) -> Mapping[str, str]:
        """As `checksums`, for the weights loaded from `model.path` before the first update; empty if not known."""
        ...

    @property
    def first_verify_s(self) -> float:
        """Seconds that the first verification may take, since it compiles kernels. 0 = the usual time."""
        ...

    async def generate(self, request: GenerateRequest) -> tuple[Completion, ...]:
        """Waits for capacity, then generates all rollouts of the group.

        Raises AbandonedError if the engine abandons the group, ContractError for a request that this engine can never
        serve (such as a prompt as long as the context).
        """
        ...

    async def begun(self, group_id: str) -> Begun | None:
        """Progress of a running group; None if no token is sampled yet, or the progress is not known before its end."""
        ...

    async def prepare(self, version: PolicyVersion, plan: common_pb2.WeightPlan, timeout_s: float) -> None:
        """Prepares to receive weights; an `in_place` engine pauses (after a drain, if so configured)."""
        ...

    async def receive(
        self, plan: common_pb2.WeightPlan, source: rollout_pb2.ReceiveWeightsRequest, timeout_s: float
    ) -> list[str]:
        """Receives weights from `source`; returns the digest of each bucket as it arrived.

        Empty for an engine that cannot compute them (it has a `checksum_format`). Always returns or raises by the
        deadline.
        """
        ...

    async def install(self, version: PolicyVersion, weights_digest: str, timeout_s: float) -> None:
        """Switches to the received weights and drops keys and values of the old ones, as `in_flight` allows.

        Nothing is decoded until `score` or `resume`.
        """
        ...

    async def checksums(self, timeout_s: float) -> Mapping[str, str]:
        """Hash of each installed tensor, in the engine's `checksum_format`; empty if it has none."""
        ...

    async def discard(self) -> None:
        """Ends an update before `resume`: drops staged weights and continues decoding with those in place."""
        ...

    async def score(self, token_ids: TokenIds, timeout_s: float) -> Logprobs:
        """float32 [seq - 1]: logprob of token t+1 given tokens up to t, at temperature 1. Works after `install`."""
        ...

    async def resume(self, timeout_s: float) -> None:
        """Continues decoding. Idempotent."""
        ...

    async def abandon(self, reason: str, timeout_s: float) -> None:
        """Abandons all groups: their `generate` raises AbandonedError."""
        ...

    async def sleep(self, timeout_s: float) -> None:
        """Releases the device memory of weights and cache; idempotent. No group may be running.

        Afterwards only `wake` works. Raises TransientError on failure: the engine's memory state is then unknown.
        """
        ...

    async def wake(self, timeout_s: float) -> None:
        """Reallocates the memory; idempotent, and a no-op for an engine that is awake.

        The weights are undefined until the next `install`.
        """
        ...

    def stats(self) -> EngineStats:
        """A recent snapshot of the counters; never waits."""
        ...

    async def own_metrics(self, timeout_s: float) -> Sequence[Metric]:
        """The engine's own Prometheus metrics; empty for an engine within this process."""
        ...

    async def failed(self) -> None:
        """Never returns; raises when the engine has failed and the process must end."""
        ...

    async def close(self, timeout_s: float) -> None:
        """Stops the engine at once; running groups are abandoned."""
        ...
