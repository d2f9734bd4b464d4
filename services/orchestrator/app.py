"""Wires the orchestrator up."""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from services.orchestrator import metrics
from services.orchestrator.annotation.desk import Desk
from services.orchestrator.beginning import Beginning
from services.orchestrator.chat import Chat, add_chat
from services.orchestrator.dashboard.board import Board
from services.orchestrator.dashboard.face import add_dashboard
from services.orchestrator.dashboard.files import Files
from services.orchestrator.dashboard.live import LiveRun
from services.orchestrator.dead_letters import DeadLetters
from services.orchestrator.evaluation import Evaluation
from services.orchestrator.issuer import Issuer
from services.orchestrator.joiners import Joiners
from services.orchestrator.meter import Meter
from services.orchestrator.operator import Operator
from services.orchestrator.peers import Peers
from services.orchestrator.prompt_stream import PromptStream
from services.orchestrator.prompts import read_prompts
from services.orchestrator.publication import Publisher
from services.orchestrator.registry import Registry
from services.orchestrator.run import Run, keep_house
from services.orchestrator.run_state import RunState
from services.orchestrator.service import SERVICE_NAME, OrchestratorServicer, rest_app
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.status import Status
from services.orchestrator.store import Store
from wire.disk import DiskWatch
from wire.events import EventLog
from wire.http import serve_http
from wire.lifecycle import Shutdown
from wire.rpc import serve as serve_rpc
from wire.streams.redis import RedisBroker
from wire.telemetry import get_logger

log = get_logger("orchestrator")


async def serve(settings: OrchestratorSettings) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code."""
    shutdown = Shutdown()
    shutdown.install(asyncio.get_running_loop())
    rows = read_prompts(settings.run_dir / "prompts.parquet")
    held_out_path = settings.run_dir / "eval.parquet"
    held_out = read_prompts(held_out_path) if held_out_path.exists() else []
    broker = RedisBroker(settings.broker.url, settings.run.id)
    await broker.check(settings.broker.connect_timeout_s)
    store = Store(settings.run_dir / "state.sqlite")
    events = EventLog(settings.run_dir, "orchestrator", secrets.token_hex(4))
    state = RunState(store, max_steps=settings.run.max_steps, failures_in_row=settings.orchestrator.failures_in_row)
    registry = Registry(settings.orchestrator.replica_lease_s)
    peers = Peers()
    prompts = PromptStream(broker, store)
    table = settings.orchestrator
    beginning = Beginning(
        registry, replicas=table.first_replicas, deadline_s=table.first_replicas_s, now=time.monotonic()
    )
    issuer = Issuer(settings, rows, store, state, broker, prompts, peers, events, beginning)
    publisher = Publisher(state, registry, peers, events, settings.orchestrator.publication)
    evaluation = Evaluation(settings, held_out, store, broker, prompts) if held_out else None
    run = Run(settings, store, state, registry, issuer, publisher, evaluation, events, broker, peers)
    run.tell_end_again()
    status = Status(store, state, registry, issuer, publisher, evaluation)
    desk = Desk(settings.run_dir)
    servicer = OrchestratorServicer(run, status, run_id=settings.run.id)
    rpc = await serve_rpc({SERVICE_NAME: servicer.add_to}, settings.host, settings.grpc_port, ready=run.why_not_ready)
    app = rest_app(run.why_not_ready, desk, settings)
    files = Files.of(settings.run_dir, settings.model.path)
    operator = Operator(state, registry, events, settings.run_dir)
    live = LiveRun(settings.run_dir, settings.run.id, status, operator, publisher, files.log)
    board = Board(files, live)
    add_dashboard(app, board, operator, DeadLetters(broker, store, issuer, rows, state, events, settings.run.id))
    add_chat(app, Chat(settings, registry, peers, state.wishes))
    http = await serve_http(app, settings.host, settings.http_port)
    disk = DiskWatch(settings.run_dir, metrics.RUN_DIR_FREE.set, metrics.RUN_DIR_SIZE.set)
    disk.start()
    log.info("serving", grpc_port=rpc.port, http_port=http.port, prompts=len(rows), held_out=len(held_out))
    loops = [
        issuer.run(),
        Joiners(state, registry, publisher, lambda: not run.turns.trainer_has).run(),
        keep_house(run, broker, status, Meter(settings, state, registry), settings.orchestrator.trim_s),
        board.run(),
        shutdown.event.wait(),
    ]
    if evaluation is not None:
        loops.append(evaluation.consume(shutdown.event))
    done = await _until_one_ends(loops, run.stop)
    disk.stop()
    await rpc.stop()
    # Not before: pages whose stream has ended ask for another one soon, and nobody is to be refused it.
    board.close()
    await http.stop()
    await desk.close()
    await peers.close()
    await broker.close()
    store.close()
    for task in done:
        task.result()
    return 0


async def _until_one_ends(
    loops: Iterable[Coroutine[Any, Any, object]], then: Callable[[], None]
) -> set[asyncio.Task[object]]:
    """Returns what has ended, whose results the caller takes; the others are cancelled, after `then`."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    then()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return done
