"""The `Engine` implementation on an SGLang server."""

import asyncio
import contextlib
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.metrics_core import Metric

from headrace.services.rollout.engines.protocol import Begun, Completion, EngineStats, GenerateRequest, InFlight, Routes
from headrace.services.rollout.engines.sglang.adapters import AdapterUpdater
from headrace.services.rollout.engines.sglang.client import SGLangClient
from headrace.services.rollout.engines.sglang.generation import Generation
from headrace.services.rollout.engines.sglang.hashing import Hashing
from headrace.services.rollout.engines.sglang.process import ServerProcess
from headrace.services.rollout.engines.sglang.requests import ServerLimits, read_scores, score_body
from headrace.services.rollout.engines.sglang.update import Updater
from headrace.wire.contracts import PolicyVersion
from headrace.wire.contracts.messages import Logprobs, TokenIds
from headrace.wire.errors import ContractError, HeadraceError, TransientError
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import common_pb2, rollout_pb2

log = get_logger("rollout.sglang")

_LOOKS = 12
"""Health checks of the server per `engine_timeout_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of the engine, for launched and attached servers alike."""

    dtype: str
    routes: Routes
    checksum_format: str
    in_flight: InFlight = InFlight.RETRACT
    max_rows: int = 0
    """0 = the server's own limit."""
    engine_timeout_s: float = 60.0
    request_timeout_s: float = 3600.0
    first_verify_s: float = 0.0
    loaded_checksums: Mapping[str, str] = field(default_factory=dict)
    """The server's checksums of what it loaded from `model.path`; empty if not known."""
    on_gpu: bool = False
    adapters: bool = False
    """Low-rank adapters are published; the server's own weights never change."""


class SGLangEngine:
    """Engine on one server that is checked and ready. `process` is None for an attached server."""

    name = "sglang"

    def __init__(
        self, client: SGLangClient, process: ServerProcess | None, limits: ServerLimits, options: EngineOptions
    ) -> None:
        self.dtype = options.dtype
        self.routes = options.routes
        self.checksum_format = options.checksum_format
        self.first_verify_s = options.first_verify_s
        self.loaded_checksums = options.loaded_checksums
        self._client = client
        self._process = process
        self._limits = limits
        self.context_length = limits.context_length
        self._options = options
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._version: PolicyVersion | None = None
        self._closing = False
        self._generation = Generation(
            client, limits, max_rows=options.max_rows, request_timeout_s=options.request_timeout_s
        )
        self.rows = self._generation.rows
        self._generation.keeps_prefixes = options.in_flight is InFlight.IN_PLACE
        self._updater = self._make_updater(client, options)
        self.in_place = self._updater.in_place
        self._watchers = [self._watch(self._look_after())]
        if process is not None:
            self._watchers.append(self._watch(self._await_end(process)))

    def _make_updater(self, client: SGLangClient, options: EngineOptions) -> Updater | AdapterUpdater:
        limit_s = options.engine_timeout_s
        generation, in_flight = self._generation, options.in_flight
        if not options.adapters:
            hashing = Hashing(client, ranks=options.routes.ranks, on_gpu=options.on_gpu)
            return Updater(client, generation, hashing, in_flight, self._break, control_timeout_s=limit_s)
        return AdapterUpdater(
            client,
            generation,
            in_flight,
            self._break,
            control_timeout_s=limit_s,
            unload_timeout_s=options.request_timeout_s,
        )

    async def generate(self, request: GenerateRequest) -> tuple[Completion, ...]:
        """Implements `Engine.generate`: sends one request per rollout; checks the group size first."""
        if 0 < self._options.max_rows < len(request.seeds):
            raise ContractError(
                "bad_group_size", f"{len(request.seeds)} rollouts, rollout.max_rows is {self._options.max_rows}"
            )
        return await self._generation.generate(request)

    async def prepare(self, version: PolicyVersion, plan: common_pb2.WeightPlan, timeout_s: float) -> None:
        """Implements `Engine.prepare`: pauses the server, unless adapters are published."""
        self._require_alive()
        self._version = version
        await self._updater.prepare(timeout_s)

    async def receive(
        self, plan: common_pb2.WeightPlan, source: rollout_pb2.ReceiveWeightsRequest, timeout_s: float
    ) -> list[str]:
        """Implements `Engine.receive`; returns digests only for adapters."""
        self._require_alive()
        if self._version is None:
            raise ContractError("no_session", "no update was prepared")
        return await self._updater.receive(self._version, plan, source, timeout_s)

    async def install(self, version: PolicyVersion, weights_digest: str, timeout_s: float) -> None:
        """Implements `Engine.install`: closes the update session, or switches to the new adapter."""
        await self._updater.install(version, weights_digest, timeout_s)

    async def checksums(self, timeout_s: float) -> Mapping[str, str]:
        """Implements `Engine.checksums`: hashed by the server; empty for adapters."""
        return await self._updater.checksums(timeout_s)

    async def discard(self) -> None:
        """Implements `Engine.discard`; a no-op once the engine has failed."""
        self._version = None
        if not self._failure.done():
            await self._updater.discard()

    async def score(self, token_ids: TokenIds, timeout_s: float) -> Logprobs:
        """Implements `Engine.score`: unpauses the server first, since a paused SGLang answers no requests."""
        if not 2 <= len(token_ids) <= self._limits.prompt_length or token_ids.max() >= self._limits.vocab:
            raise ContractError("bad_tokens", f"{len(token_ids)} tokens cannot be scored by this model")
        await self._updater.unpause(timeout_s)
        generation = self._generation
        body = score_body(
            token_ids, self._limits, request_id=uuid.uuid4().hex, salt=generation.salt, adapter=generation.adapter
        )
        return read_scores(await self._client.generate(body, timeout_s), token_ids, self._limits)

    async def resume(self, timeout_s: float) -> None:
        """Implements `Engine.resume`; a no-op once the engine has failed."""
        if not self._failure.done():
            await self._updater.resume(timeout_s)

    async def abandon(self, reason: str, timeout_s: float) -> None:
        """Implements `Engine.abandon`: requests still on the server are aborted in the background."""
        self._generation.abandon(reason)

    async def sleep(self, timeout_s: float) -> None:
        """Implements `Engine.sleep`: pauses the server and releases its memory; refused for adapters."""
        self._require_alive()
        await self._updater.sleep(timeout_s)

    async def wake(self, timeout_s: float) -> None:
        """Implements `Engine.wake`: the server stays paused until the next update."""
        self._require_alive()
        await self._updater.wake(timeout_s)

    def stats(self) -> EngineStats:
        """Implements `Engine.stats` with the counters kept by this client."""
        return self._generation.stats()

    async def begun(self, group_id: str) -> Begun | None:
        """Implements `Engine.begun`: see `Generation.begun`."""
        return self._generation.begun(group_id)

    async def own_metrics(self, timeout_s: float) -> Sequence[Metric]:
        """Implements `Engine.own_metrics`: scrapes the server's `/metrics`."""
        return await self._client.metrics(timeout_s)

    async def failed(self) -> None:
        """Implements `Engine.failed`: raises when the server ends, stops answering or has to be given up."""
        await asyncio.shield(self._failure)

    async def close(self, timeout_s: float) -> None:
        """Implements `Engine.close`: kills a launched server. Raises WaitTimeoutError if it does not exit."""
        self._closing = True
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        if self._process is None and self._updater.busy and not self._failure.done():
            # An attached server is left as it was found: running.
            await self._updater.discard()
        await self._updater.close()
        await self._generation.close()
        await self._client.close()
        if self._process is not None:
            await self._process.end()
        if self._failure.done():
            self._failure.exception()

    def _require_alive(self) -> None:
        if self._failure.done():
            raise TransientError(f"the engine has broken down: {self._failure.exception()}")

    def _break(self, reason: str) -> None:
        """Marks the engine as failed: kills a launched server and abandons all groups; the process must end."""
        if self._failure.done() or self._closing:
            return
        log.error("engine_broken", reason=reason)
        if self._process is not None:
            self._process.kill()
        self._generation.abandon(reason)
        self._failure.set_exception(TransientError(reason))

    async def _await_end(self, process: ServerProcess) -> None:
        self._break(f"the SGLang server ended: {await process.wait()}")

    async def _look_after(self) -> None:
        """Checks the server's health periodically; not during an update, whose own deadlines are stricter."""
        timeout_s = self._options.engine_timeout_s
        while True:
            await asyncio.sleep(timeout_s / _LOOKS)
            if self._updater.busy:
                continue
            try:
                await self._client.server_info(timeout_s)
                if self._process is None:
                    await self._count_others(timeout_s)
            except HeadraceError as error:
                if not self._updater.busy:
                    self._break(f"the SGLang server does not answer: {error}")

    async def _count_others(self, timeout_s: float) -> None:
        """Counts other clients' requests on an attached server: they occupy slots too."""
        admission = self._generation.admission
        ours = admission.inside
        running, waiting = await self._client.loads(timeout_s)
        admission.make_room(max(running + waiting - max(ours, admission.inside), 0))

    def _watch(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        task.add_done_callback(self._watched)
        return task

    def _watched(self, task: "asyncio.Task[None]") -> None:
        with contextlib.suppress(asyncio.CancelledError):
            if (error := task.exception()) is not None:
                self._break(f"{error!r}")
