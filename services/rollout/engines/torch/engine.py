"""The `Engine` implementation on embedded torch: async calls to the engine's thread."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from prometheus_client.metrics_core import Metric
from torch import Tensor

from headrace.services.rollout.engines.protocol import (
    AbandonedError,
    Begun,
    Completion,
    EngineStats,
    GenerateRequest,
    InFlight,
    Routes,
)
from headrace.services.rollout.engines.torch.adapter import load_base, merge
from headrace.services.rollout.engines.torch.architecture import load_config, read_architecture
from headrace.services.rollout.engines.torch.cache import KeyValueCache
from headrace.services.rollout.engines.torch.core import EngineCore
from headrace.services.rollout.engines.torch.groups import Group, Installed, Outcome
from headrace.services.rollout.engines.torch.model import Model
from headrace.services.rollout.engines.torch.receive import Receiver
from headrace.services.rollout.engines.torch.rope import rotation_table
from headrace.services.rollout.engines.torch.thread import EngineThread
from headrace.services.rollout.engines.torch.weights import ModelWeights, build_weights
from headrace.wire.contracts import PolicyVersion
from headrace.wire.contracts.messages import Logprobs, TokenIds
from headrace.wire.errors import ConfigError, ContractError, TransientError, WaitTimeoutError
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.v1 import common_pb2, rollout_pb2
from headrace.wire.weights import tensors_of

T = TypeVar("T")

_EMPTY = EngineStats(
    groups=0,
    rollouts=0,
    waiting=0,
    generated_tokens=0,
    prompt_tokens=0,
    recomputed_tokens=0,
    decode_seconds=0.0,
    busy_seconds=0.0,
)
_DRAIN_POLL_S = 0.01


class TorchEngine:
    """Decodes Llama and Qwen models. The folder gives the architecture; weights come by `install` or `adopt`."""

    name = "torch"
    in_place = False
    checksum_format = ""
    loaded_checksums: Mapping[str, str] = MappingProxyType({})
    first_verify_s = 0.0

    def __init__(
        self,
        model_path: Path,
        *,
        dtype: str = "float32",
        fp32_head: bool = False,
        device: str = "cpu",
        max_rows: int = 64,
        context_length: int = 0,
        deterministic: bool = False,
        in_flight: InFlight = InFlight.RETRACT,
        threads: int = 1,
    ) -> None:
        """Allocates the cache and starts the thread; `context_length` 0 = the model's maximum.

        `fp32_head`: compute the logits in float32 also for bfloat16 weights.

        Raises ConfigError for an unsupported model, a context beyond the model's, or a missing device.
        """
        config = load_config(model_path)
        self.dtype = dtype
        self._arch = read_architecture(config)
        self.context_length = _checked_context(context_length, self._arch.max_positions)
        self._device = _checked_device(device)
        self._torch_dtype: torch.dtype = getattr(torch, dtype)
        self._fp32_head = fp32_head
        self._rotations = rotation_table(config, self.context_length, self._device)
        self.rows = max_rows
        self._arriving = 0
        """Rollouts on their way to the engine's thread."""
        self._cache: KeyValueCache | None = self._make_cache()
        self._before = _EMPTY
        """Accumulated counters of earlier cores, which `sleep` has ended."""
        self._deterministic = deterministic
        self._in_flight = in_flight
        self._staged: tuple[common_pb2.WeightPlan, list[Tensor]] | None = None
        self._ticket = object()
        self._receiver = Receiver(self._device)
        self._model_path = model_path
        self._base: dict[str, Tensor] | None = None
        """The base weights for adapters; loaded with the first adapter."""
        self._thread = EngineThread(threads=threads)

    @property
    def routes(self) -> Routes:
        """Implements `Engine.routes`: gloo, and NCCL on a GPU."""
        return self._receiver.routes

    async def generate(self, request: GenerateRequest) -> tuple[Completion, ...]:
        """Implements `Engine.generate`: queues the group on the engine's thread; cancellation removes it."""
        done: Future[tuple[Completion, ...]] = Future()
        done.set_running_or_notify_cancel()
        submitted: list[Group] = []

        def submit() -> None:
            submitted.append(self._core().submit(request, lambda outcome: _deliver(done, outcome)))

        try:
            self._arriving += len(request.seeds)
            try:
                await self._call(submit, 30.0)
            finally:
                self._arriving -= len(request.seeds)
            return await asyncio.wrap_future(done)
        except (asyncio.CancelledError, WaitTimeoutError):
            # The thread obeys in order: by then the group is submitted, or never will be.
            self._thread.call(lambda: self._forget(submitted))
            raise

    async def begun(self, group_id: str) -> Begun | None:
        """Implements `Engine.begun` between two decode steps."""
        return await self._call(lambda: self._core().begun(group_id), 30.0)

    async def prepare(self, version: PolicyVersion, plan: common_pb2.WeightPlan, timeout_s: float) -> None:
        """Implements `Engine.prepare`: a no-op, since weights are staged beside the running ones."""

    async def receive(
        self, plan: common_pb2.WeightPlan, source: rollout_pb2.ReceiveWeightsRequest, timeout_s: float
    ) -> list[str]:
        """Implements `Engine.receive`: stages the buckets beside the running weights and hashes them."""
        self._staged = None
        ticket = self._ticket = object()
        buckets, digests = await asyncio.to_thread(self._receiver.receive, plan, source, timeout_s)
        if self._ticket is not ticket:
            raise TransientError("the transfer was given up")
        self._staged = (plan, buckets)
        return digests

    async def install(self, version: PolicyVersion, weights_digest: str, timeout_s: float) -> None:
        """Implements `Engine.install`: packs the weights while the old ones still decode; pauses only for the swap."""
        if self._staged is None:
            raise ContractError("no_weights", "there are no received weights to install")
        plan, buckets = self._staged
        weights = await asyncio.to_thread(self._build, plan, buckets)
        self._staged = None
        in_flight = self._in_flight
        if in_flight is InFlight.DRAIN and not await self._drained(timeout_s / 2):
            in_flight = InFlight.RETRACT
        installed = Installed(version, weights_digest)
        await self._call(lambda: self._install(weights, installed, in_flight), timeout_s)

    async def adopt(self, named: Mapping[str, Tensor], version: PolicyVersion, timeout_s: float) -> None:
        """Installs weights given as tensors, without a publication, and decodes with them from now on."""
        weights = await asyncio.to_thread(self._weights_of, named)
        await self._call(lambda: self._install(weights, Installed(version, ""), InFlight.RETRACT), timeout_s)
        await self.resume(timeout_s)

    async def checksums(self, timeout_s: float) -> Mapping[str, str]:
        """Implements `Engine.checksums`: empty, since the buckets' digests suffice."""
        return {}

    async def discard(self) -> None:
        """Implements `Engine.discard`: drops staged weights; the result of a running transfer is ignored."""
        self._staged = None
        self._ticket = object()

    async def score(self, token_ids: TokenIds, timeout_s: float) -> Logprobs:
        """Implements `Engine.score`; running rollouts are unaffected."""
        if not 2 <= len(token_ids) <= self.context_length or token_ids.max() >= self._arch.vocab:
            raise ContractError("bad_tokens", f"{len(token_ids)} tokens cannot be scored by this model")
        scores = await self._call(lambda: self._core().score(torch.tensor(token_ids, dtype=torch.int64)), timeout_s)
        return scores.numpy()

    async def resume(self, timeout_s: float) -> None:
        """Implements `Engine.resume`: also admits waiting groups again after a drain."""
        await self._call(self._resume, timeout_s)

    async def abandon(self, reason: str, timeout_s: float) -> None:
        """Implements `Engine.abandon`; a no-op before the first weights."""
        if self._thread.core is not None:
            await self._call(lambda: self._core().abandon(reason), timeout_s)

    async def sleep(self, timeout_s: float) -> None:
        """Implements `Engine.sleep`: drops weights and cache and empties torch's CUDA allocator cache."""
        self._staged = None
        self._ticket = object()
        await self._call(self._fall_asleep, timeout_s)

    async def wake(self, timeout_s: float) -> None:
        """Implements `Engine.wake`: allocates the cache again; TransientError if memory does not suffice."""
        if self._cache is None:
            try:
                self._cache = await self._call(self._make_cache, timeout_s)
            except torch.OutOfMemoryError as error:
                raise TransientError(f"there is no room for the engine's cache: {error}") from error

    def stats(self) -> EngineStats:
        """Implements `Engine.stats`, including the counters from before the last `sleep`."""
        core = self._thread.core
        found = self._before.plus(core.stats()) if core is not None else self._before
        return replace(found, waiting=found.waiting + self._arriving)

    async def own_metrics(self, timeout_s: float) -> Sequence[Metric]:
        """Implements `Engine.own_metrics`: none, since the service's own metrics cover this engine."""
        return ()

    async def failed(self) -> None:
        """Implements `Engine.failed`: raises the exception that ended the engine's thread."""
        await asyncio.wrap_future(self._thread.failure)

    async def close(self, timeout_s: float) -> None:
        """Implements `Engine.close`; raises TransientError if the thread does not end in time."""
        self._thread.end()
        if not await asyncio.to_thread(self._thread.join, timeout_s):
            raise TransientError(f"the engine's thread did not end within {timeout_s:.1f} s")
        if self._thread.core is not None:
            self._thread.core.abandon("the engine was closed")

    def _build(self, plan: common_pb2.WeightPlan, buckets: list[Tensor]) -> ModelWeights:
        named = dict(tensors_of(plan, buckets))
        if plan.adapter_config:
            if self._base is None:
                self._base = load_base(self._model_path)
            named = dict(merge(self._base, named, plan.adapter_config))
        return self._weights_of(named)

    def _weights_of(self, named: Mapping[str, Tensor]) -> ModelWeights:
        return build_weights(self._arch, named, dtype=self._torch_dtype, device=self._device, fp32_head=self._fp32_head)

    def _core(self) -> EngineCore:
        if self._thread.core is None:
            raise AbandonedError("the engine sleeps" if self._cache is None else "the engine has no weights yet")
        return self._thread.core

    def _make_cache(self) -> KeyValueCache:
        return KeyValueCache(
            self._arch,
            rows=self.rows,
            context_length=self.context_length,
            dtype=self._torch_dtype,
            device=self._device,
        )

    def _fall_asleep(self) -> None:
        core = self._thread.core
        if core is not None:
            core.abandon("the engine sleeps")
            self._before = self._before.plus(core.stats())
        self._thread.core = self._cache = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _install(self, weights: ModelWeights, installed: Installed, in_flight: InFlight) -> None:
        self._thread.paused = True
        if self._cache is None:
            raise TransientError("the engine sleeps: it has no room for weights")
        if self._thread.core is None:
            model = Model(self._arch, weights, self._rotations, self._cache)
            self._thread.core = EngineCore(
                model, vocab=self._arch.vocab, deterministic=self._deterministic, device=self._device
            )
        self._thread.core.install(weights, installed, in_flight)
        self._thread.core.admitting = True

    def _resume(self) -> None:
        self._thread.paused = False
        if self._thread.core is not None:
            self._thread.core.admitting = True

    def _forget(self, groups: Sequence[Group]) -> None:
        for group in groups:
            if self._thread.core is not None:
                self._thread.core.cancel(group)

    async def _drained(self, timeout_s: float) -> bool:
        """Stops admission and waits for running rollouts to end; returns whether they did in time."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < deadline:
            if await self._call(self._is_drained, timeout_s):
                return True
            await asyncio.sleep(_DRAIN_POLL_S)
        return False

    def _is_drained(self) -> bool:
        core = self._thread.core
        if core is None:
            return True
        core.admitting = False
        return core.is_idle

    async def _call(self, act: Callable[[], T], timeout_s: float) -> T:
        if self._thread.failure.done():
            raise TransientError(f"the engine has broken down: {self._thread.failure.exception()!r}")
        return await wait_for(asyncio.wrap_future(self._thread.call(act)), timeout_s, "the engine's next step")


def _deliver(done: "Future[Any]", outcome: Outcome) -> None:
    if isinstance(outcome, Exception):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)


def _checked_context(wanted: int, most: int) -> int:
    if wanted > most:
        raise ConfigError(f"rollout.context_length: {wanted} is beyond the model's {most} positions")
    return wanted or most


def _checked_device(name: str) -> torch.device:
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"run.device: {name!r}, but torch sees no CUDA device")
    return device
