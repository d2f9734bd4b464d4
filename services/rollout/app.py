"""Wires up one replica."""

import asyncio
import functools
import os
import secrets
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, TypeVar

from headrace.services.rollout import metrics
from headrace.services.rollout.chat.chat import ChatService
from headrace.services.rollout.engines.protocol import Engine, InFlight
from headrace.services.rollout.replica.capacity import RowPool, group_limit
from headrace.services.rollout.replica.gate import Gate
from headrace.services.rollout.replica.gpu_turns import ReplicaTurns, first_turn, make_lock
from headrace.services.rollout.replica.groups import GroupGenerator
from headrace.services.rollout.replica.heartbeat import Heartbeat, Identity
from headrace.services.rollout.replica.http_server import ReplicaHttpServer
from headrace.services.rollout.replica.states import ReplicaState
from headrace.services.rollout.replica.turn_sampler import TurnSampler
from headrace.services.rollout.service import SERVICE_NAME, RolloutServicer
from headrace.services.rollout.settings import RolloutSettings
from headrace.services.rollout.text import TextDecoder
from headrace.services.rollout.weights.update import Updates
from headrace.wire.contracts import DropReason
from headrace.wire.host.gpu_lock import GpuLock
from headrace.wire.http import HttpPolicy, serve_http
from headrace.wire.peers.rpc import serve as serve_rpc
from headrace.wire.process.lifecycle import Shutdown, aside, until_first_end
from headrace.wire.process.threads import start_threads
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.streams import Broker, StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.streams.worker import Worker
from headrace.wire.telemetry.logs import get_logger

if TYPE_CHECKING:
    from headrace.services.rollout.engines.torch.engine import TorchEngine

T = TypeVar("T")
log = get_logger("rollout")

_CLOSE_S = 5.0


async def serve(settings: RolloutSettings) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code. Raises the error of a part that failed."""
    start_threads()
    shutdown = Shutdown()
    shutdown.install(asyncio.get_running_loop())
    front = ReplicaHttpServer()
    http = await serve_http(front.app(HttpPolicy.of(settings)), settings.host, settings.http_port)
    log.info("answering", http_port=http.port)
    broker = RedisBroker(settings.broker.url, settings.run.id)
    lock = make_lock(settings)
    try:
        started = await _started(_start(settings, broker, front, lock), shutdown)
        if started is not None:
            await run_replica(settings, *started, broker, shutdown, front, lock)
    finally:
        await broker.close()
        await http.stop()
    return 0


async def _start(
    settings: RolloutSettings, broker: RedisBroker, front: ReplicaHttpServer, lock: GpuLock | None
) -> tuple[Engine, TextDecoder]:
    """Connects to the broker and starts tokenizer and engine; may take minutes, while HTTP already answers."""
    front.starts("the broker is asked")
    await broker.check(settings.broker.connect_timeout_s)
    front.starts("the tokenizer is loaded")
    decoder = await aside(lambda: TextDecoder(settings.model.path), "load-tokenizer")
    await first_turn(lock, front.starts)
    began = time.monotonic()
    front.starts(f"the engine starts: {settings.rollout.engine}")
    engine = await start_engine(settings, lock)
    log.info("engine_ready", engine=engine.name, seconds=round(time.monotonic() - began, 2))
    return engine, decoder


async def _started(start: Coroutine[object, object, T], shutdown: Shutdown) -> T | None:
    """The result of `start`; None if the shutdown comes first (an engine may need minutes to start)."""
    starting, stopping = asyncio.create_task(start), asyncio.create_task(shutdown.event.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            return starting.result()
    finally:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.wait({starting, stopping}, timeout=_CLOSE_S)
    log.info("stopped_while_starting")
    return None


async def start_engine(settings: RolloutSettings, lock: GpuLock | None = None) -> Engine:
    """Starts the engine named by `[rollout] engine`; raises ConfigError for settings that it does not support."""
    if settings.rollout.engine == "sglang":
        from headrace.services.rollout.engines.sglang.start import start_engine as start_sglang

        return await start_sglang(settings, lock)
    return await aside(lambda: make_engine(settings), "start-engine")


def make_engine(settings: RolloutSettings) -> "TorchEngine":
    """Creates the embedded torch engine; raises ConfigError for an unsupported model."""
    from headrace.services.rollout.engines.torch.engine import TorchEngine

    table, device = settings.rollout, settings.run.device
    if table.gpu_sharing == "turns" and device == "cuda":
        device = f"cuda:{settings.number}"  # That of the trainer's rank with this number.
    return TorchEngine(
        settings.model.path,
        dtype=settings.model.dtype,
        fp32_head=settings.model.fp32_head,
        device=device,
        max_rows=max(table.torch_rows, settings.group_rows),
        context_length=table.context_length,
        deterministic=table.deterministic,
        in_flight=InFlight(table.in_flight),
        threads=settings.run.threads,
    )


async def run_replica(
    settings: RolloutSettings,
    engine: Engine,
    decoder: TextDecoder,
    broker: Broker,
    shutdown: Shutdown,
    front: ReplicaHttpServer,
    lock: GpuLock | None = None,
) -> None:
    """Serves with an engine and a broker until the shutdown; `front` then reports this replica's state.

    When the run has finished the engine ends, so that an SGLang server frees its GPUs, and the process waits for the
    shutdown. `lock` is the held lock of a GPU that the engine shares with the trainer, if it does.
    """
    table = settings.rollout
    replica_id, boot_id = f"rollout-{settings.instance}", secrets.token_hex(8)
    gate = front.gate
    events = EventLog(settings.run_dir, replica_id, boot_id)
    generator = _make_generator(settings, engine, gate, events, decoder, replica_id)
    turns = ReplicaTurns(engine, gate, events, lock, engine_timeout_s=table.engine_timeout_s)
    updates = Updates(engine, gate, events, engine_timeout_s=table.engine_timeout_s, wake=turns.wake)
    worker = _make_worker(settings, broker, generator, replica_id)
    gate.wakes(worker.look_again)
    front.has_started(engine, generator)
    chat = ChatService(engine, gate, decoder.tokenizer, replica_id=replica_id, at_once=table.chats)
    sampler = TurnSampler(engine, gate, generator, replica_id=replica_id)
    servicer = RolloutServicer(updates, turns, engine, gate, generator, chat, sampler, replica_id=replica_id)
    rpc = await serve_rpc(
        {SERVICE_NAME: servicer.add_to}, settings.rpc_host, settings.grpc_port, ready=front.why_not_ready
    )
    heartbeat = Heartbeat(
        settings.orchestrator_address,
        _make_identity(settings, replica_id, boot_id, rpc.port),
        engine,
        gate,
        generator,
        interval_s=table.heartbeat_s,
        take_word=updates.take_word,
    )
    gate.move(ReplicaState.PENDING_WEIGHTS)
    log.info("serving", grpc=settings.rpc_address(rpc.port), replica_id=replica_id)

    def drain() -> None:
        updates.leave()
        gate.move(ReplicaState.DRAINING)

    try:
        end = Shutdown()
        parts = [worker.run(end.event), heartbeat.run(), engine.failed(), shutdown.event.wait()]
        if settings.run.stale == "drop" and settings.run.max_staleness:
            most = settings.run.max_staleness
            parts.append(generator.under_way.give_up_stale(engine, broker, lambda: gate.version.version, most))
        await until_first_end(end, drain, *parts)
    finally:
        await heartbeat.farewell()
        front.has_ended()
        await engine.close(_CLOSE_S)
        gate.move(ReplicaState.GONE)
        await rpc.stop()
        events.close()
    if not shutdown.event.is_set():
        log.info("run_finished", engine="ended")
        await shutdown.event.wait()


def _make_identity(settings: RolloutSettings, replica_id: str, boot_id: str, port: int) -> Identity:
    return Identity(
        run_id=settings.run.id,
        replica_id=replica_id,
        boot_id=boot_id,
        address=settings.rpc_address(port),
        pid=os.getpid(),
    )


def _make_worker(settings: RolloutSettings, broker: Broker, generator: GroupGenerator, replica_id: str) -> Worker:
    return Worker(
        broker,
        StreamName.PROMPTS,
        replica_id,
        generator.handle,
        service="rollout",
        lease_s=settings.broker.lease_s,
        capacity=generator.capacity,
        failure=DropReason.ROLLOUT_FAILED,
        observe=lambda outcome: metrics.GROUPS.labels(outcome).inc(),
    )


def _make_generator(
    settings: RolloutSettings, engine: Engine, gate: Gate, events: EventLog, decoder: TextDecoder, replica_id: str
) -> GroupGenerator:
    table = settings.rollout
    metrics.ROWS.set(engine.rows)
    limit = functools.partial(
        group_limit,
        batch_groups=settings.batch.groups,
        max_staleness=settings.run.max_staleness,
        deterministic=table.deterministic,
    )
    return GroupGenerator(
        engine,
        gate,
        events,
        decoder.decode,
        replica_id=replica_id,
        limit=limit,
        rows=RowPool(engine.rows, settings.group_rows),
        share=1 / max(table.replicas, 1),
        hold_s=table.hold_s,
        kept_ids=RunPaths(settings.run_dir).kept_ids,
    )
