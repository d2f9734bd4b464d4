"""The embedded engine as the service sees it: async calls on top of the engine's thread."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from prometheus_client.metrics_core import Metric
from torch import Tensor

from services.rollout.engines.protocol import (
    AbandonedError,
    Begun,
    Completion,
    EngineStats,
    GenerateRequest,
    InFlight,
    Routes,
)
from services.rollout.engines.torch.adapter import load_base, merge
from services.rollout.engines.torch.architecture import load_config, read_architecture
from services.rollout.engines.torch.cache import KeyValueCache
from services.rollout.engines.torch.core import EngineCore
from services.rollout.engines.torch.groups import Group, Installed, Outcome
from services.rollout.engines.torch.model import Model
from services.rollout.engines.torch.receive import Receiver
from services.rollout.engines.torch.rope import rotation_table
from services.rollout.engines.torch.thread import EngineThread
from services.rollout.engines.torch.weights import ModelWeights, build_weights
from wire.contracts import PolicyVersion
from wire.contracts.messages import Logprobs, TokenIds
from wire.errors import ConfigError, ContractError, TransientError
from wire.lifecycle import wait_for
from wire.v1 import common_pb2, rollout_pb2
from wire.weights import tensors_of

T = TypeVar("T")

_EMPTY = EngineStats(
    groups=0,
    rollouts=0,
    generated_tokens=0,
    prompt_tokens=0,
    recomputed_tokens=0,
    decode_seconds=0.0,
    busy_seconds=0.0,
)
_DRAIN_POLL_S = 0.01


class TorchEngine:
    """Decodes a Llama or Qwen model folder's architecture; its weights come by `receive` and `install` only."""

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
        """Allocates the cache and starts the thread; `context_length` 0 = what the model was made for.

        `fp32_head`: in bfloat16 too the logits are float32.

        Raises ConfigError for a model it cannot decode, a context beyond the model's, or a device that is not there.
        """
        config = load_config(model_path)
        self.dtype = dtype
        self._arch = read_architecture(config)
        self._context_length = _checked_context(context_length, self._arch.max_positions)
        self._device = _checked_device(device)
        self._torch_dtype: torch.dtype = getattr(torch, dtype)
        self._fp32_head = fp32_head
        self._rotations = rotation_table(config, self._context_length, self._device)
        self._max_rows = max_rows
        self._cache: KeyValueCache | None = self._make_cache()
        self._before = _EMPTY
        """Counters of the cores that sleep has ended."""
        self._deterministic = deterministic
        self._in_flight = in_flight
        self._staged: tuple[common_pb2.WeightPlan, list[Tensor]] | None = None
        self._ticket = object()
        self._receiver = Receiver(self._device)
        self._model_path = model_path
        self._base: dict[str, Tensor] | None = None
        """What adapters are merged into; loaded with the first one."""
        self._thread = EngineThread(threads=threads)

    @property
    def routes(self) -> Routes:
        """See Engine."""
        return self._receiver.routes

    async def generate(self, request: GenerateRequest) -> tuple[Completion, ...]:
        """See Engine."""
        done: Future[tuple[Completion, ...]] = Future()
        done.set_running_or_notify_cancel()
        group = await self._call(lambda: self._core().submit(request, lambda outcome: _deliver(done, outcome)), 30.0)
        try:
            return await asyncio.wrap_future(done)
        except asyncio.CancelledError:
            self._thread.call(lambda: self._forget(group))
            raise

    async def begun(self, group_id: str) -> Begun | None:
        """See Engine."""
        return await self._call(lambda: self._core().begun(group_id), 30.0)

    async def prepare(self, version: PolicyVersion, plan: common_pb2.WeightPlan, timeout_s: float) -> None:
        """See Engine. Weights are staged beside the running ones: there is nothing to do."""

    async def receive(
        self, plan: common_pb2.WeightPlan, source: rollout_pb2.ReceiveWeightsRequest, timeout_s: float
    ) -> list[str]:
        """See Engine."""
        self._staged = None
        ticket = self._ticket = object()
        buckets, digests = await asyncio.to_thread(self._receiver.receive, plan, source, timeout_s)
        if self._ticket is not ticket:
            raise TransientError("the transfer was given up")
        self._staged = (plan, buckets)
        return digests

    async def install(self, version: PolicyVersion, weights_digest: str, timeout_s: float) -> None:
        """See Engine. The weights are packed while the old ones still decode; the pause is the swap alone."""
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
        """Weights that are at hand, without a publication: decodes with them from now on."""
        weights = await asyncio.to_thread(self._weights_of, named)
        await self._call(lambda: self._install(weights, Installed(version, ""), InFlight.RETRACT), timeout_s)
        await self.resume(timeout_s)

    async def checksums(self, timeout_s: float) -> Mapping[str, str]:
        """See Engine."""
        return {}

    async def discard(self) -> None:
        """See Engine. A transfer still under way is ignored when it ends."""
        self._staged = None
        self._ticket = object()

    async def score(self, token_ids: TokenIds, timeout_s: float) -> Logprobs:
        """See Engine."""
        if not 2 <= len(token_ids) <= self._context_length or token_ids.max() >= self._arch.vocab:
            raise ContractError("bad_tokens", f"{len(token_ids)} tokens cannot be scored by this model")
        scores = await self._call(lambda: self._core().score(torch.tensor(token_ids, dtype=torch.int64)), timeout_s)
        return scores.numpy()

    async def resume(self, timeout_s: float) -> None:
        """See Engine."""
        await self._call(self._resume, timeout_s)

    async def abandon(self, reason: str, timeout_s: float) -> None:
        """See Engine."""
        if self._thread.core is not None:
            await self._call(lambda: self._core().abandon(reason), timeout_s)

    async def sleep(self, timeout_s: float) -> None:
        """See Engine. Weights and cache are dropped, and torch's allocator returns their memory."""
        self._staged = None
        self._ticket = object()
        await self._call(self._fall_asleep, timeout_s)

    async def wake(self, timeout_s: float) -> None:
        """See Engine."""
        if self._cache is None:
            try:
                self._cache = await self._call(self._make_cache, timeout_s)
            except torch.OutOfMemoryError as error:
                raise TransientError(f"there is no room for the engine's cache: {error}") from error

    def stats(self) -> EngineStats:
        """See Engine."""
        core = self._thread.core
        return self._before.plus(core.stats()) if core is not None else self._before

    async def own_metrics(self, timeout_s: float) -> Sequence[Metric]:
        """See Engine: what it does is among the service's own."""
        return ()

    async def failed(self) -> None:
        """See Engine."""
        await asyncio.wrap_future(self._thread.failure)

    async def close(self, timeout_s: float) -> None:
        """See Engine."""
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
            rows=self._max_rows,
            context_length=self._context_length,
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

    def _forget(self, group: Group) -> None:
        if self._thread.core is not None:
            self._thread.core.cancel(group)

    async def _drained(self, timeout_s: float) -> bool:
        """Lets running rollouts end; returns whether they did in time."""
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
