"""Wires up the orchestrator process."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.annotation.annotation_service import AnnotationService
from headrace.services.orchestrator.dashboard.api import add_dashboard
from headrace.services.orchestrator.dashboard.board import Board
from headrace.services.orchestrator.dashboard.live import LiveRun
from headrace.services.orchestrator.dashboard.readers.files import Files
from headrace.services.orchestrator.http.chat import ChatRoutes, add_chat
from headrace.services.orchestrator.issuing.dead_letters import DeadLetters
from headrace.services.orchestrator.issuing.evaluation import Evaluation
from headrace.services.orchestrator.issuing.issuer import Issuer
from headrace.services.orchestrator.issuing.prompt_stream import PromptStream
from headrace.services.orchestrator.issuing.prompts import read_prompts
from headrace.services.orchestrator.issuing.start_gate import StartGate
from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.publication.coordinator import PublicationCoordinator
from headrace.services.orchestrator.publication.joiners import Joiners
from headrace.services.orchestrator.run import Orchestrator, keep_house
from headrace.services.orchestrator.service import SERVICE_NAME, OrchestratorServicer, rest_app
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.services.orchestrator.state.operator import Operator
from headrace.services.orchestrator.state.registry import Registry
from headrace.services.orchestrator.state.run_metrics import RunMetrics
from headrace.services.orchestrator.state.run_state import RunState
from headrace.services.orchestrator.state.store import Store
from headrace.services.orchestrator.status import Status
from headrace.wire.host.disk import DiskWatch
from headrace.wire.http import serve_http
from headrace.wire.peers.rpc import serve as serve_rpc
from headrace.wire.process.lifecycle import Shutdown
from headrace.wire.process.threads import start_threads
from headrace.wire.rundir.events import EventLog, new_life
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.telemetry.logs import get_logger

log = get_logger("orchestrator")


async def serve(settings: OrchestratorSettings) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code."""
    start_threads()
    shutdown = Shutdown()
    shutdown.install(asyncio.get_running_loop())
    rows = read_prompts(RunPaths(settings.run_dir).prompts)
    held_out_path = RunPaths(settings.run_dir).eval_prompts
    held_out = read_prompts(held_out_path) if held_out_path.exists() else []
    broker = RedisBroker(settings.broker.url, settings.run.id)
    await broker.check(settings.broker.connect_timeout_s)
    store = Store(RunPaths(settings.run_dir).state)
    events = EventLog(settings.run_dir, "orchestrator", new_life(settings.run_dir, "orchestrator"))
    _report_damage(store, settings, events)
    state = RunState(store, max_steps=settings.run.max_steps, failures_in_row=settings.orchestrator.failures_in_row)
    registry = Registry(settings.orchestrator.replica_lease_s)
    clients = Clients()
    prompts = PromptStream(broker, store)
    table = settings.orchestrator
    start_gate = StartGate(
        registry, replicas=table.first_replicas, deadline_s=table.first_replicas_s, now=time.monotonic()
    )
    issuer = Issuer(settings, rows, store, state, broker, prompts, clients, events, start_gate)
    publisher = PublicationCoordinator(state, registry, clients, events, settings.orchestrator.publication)
    evaluation = Evaluation(settings, held_out, store, broker, prompts) if held_out else None
    run = Orchestrator(settings, store, state, registry, issuer, publisher, evaluation, events, broker, clients)
    run.repeat_end()
    status = Status(store, state, registry, issuer, publisher, evaluation, run.environments, settings.run_dir)
    annotation = AnnotationService(settings.run_dir)
    files = Files.of(settings.run_dir, settings.model.path)
    operator = Operator(state, registry, events, settings.run_dir)
    live = LiveRun(settings.run.id, status, operator, publisher, files)
    servicer = OrchestratorServicer(run, run_id=settings.run.id)
    rpc = await serve_rpc(
        {SERVICE_NAME: servicer.add_to}, settings.rpc_host, settings.grpc_port, ready=run.why_not_ready
    )
    app = rest_app(run.why_not_ready, annotation, settings)
    board = Board(files, live)
    add_dashboard(app, board, operator, DeadLetters(broker, store, issuer, rows, state, events, settings.run.id))
    add_chat(app, ChatRoutes(settings, registry, clients, state.operator_requests))
    http = await serve_http(app, settings.host, settings.http_port)
    disk = DiskWatch(settings.run_dir, metrics.RUN_DIR_FREE.set, metrics.RUN_DIR_SIZE.set)
    disk.start()
    address = settings.rpc_address(rpc.port)
    log.info("serving", grpc=address, http_port=http.port, prompts=len(rows), held_out=len(held_out))
    loops = [
        issuer.run(),
        Joiners(state, registry, publisher, lambda: not run.turns.trainer_has).run(),
        keep_house(run, broker, status, RunMetrics(settings, state, registry), settings.orchestrator.trim_s),
        board.run(),
        shutdown.event.wait(),
    ]
    if evaluation is not None:
        loops.append(evaluation.consume(shutdown.event))
    done = await _until_one_ends(loops, run.stop)
    disk.stop()
    await rpc.stop()
    # Not earlier: pages whose stream has ended soon reconnect, and must not be refused.
    board.close()
    await http.stop()
    await annotation.close()
    await clients.close()
    await broker.close()
    store.close()
    for task in done:
        task.result()
    return 0


def _report_damage(store: Store, settings: OrchestratorSettings, events: EventLog) -> None:
    """Reports a database that was put aside at this start."""
    if store.damaged is None:
        return
    found = {"moved_to": str(store.damaged.moved_to), "reason": store.damaged.reason}
    log.warning("state_damaged", path=str(RunPaths(settings.run_dir).state), **found)
    events.append("state_damaged", **found)


async def _until_one_ends(
    loops: Iterable[Coroutine[object, object, object]], then: Callable[[], None]
) -> set[asyncio.Task[object]]:
    """Returns the tasks that ended first, results not yet retrieved; calls `then` and cancels the others."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    then()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return done
