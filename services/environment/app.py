"""Wires the environment service up."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.services.environment import metrics
from headrace.services.environment.child.config import ChildConfig
from headrace.services.environment.child.pool import ChildPool
from headrace.services.environment.health import EnvironmentHealth
from headrace.services.environment.identity import environment_digest
from headrace.services.environment.player.episode import EpisodeLimits, EpisodePlayer
from headrace.services.environment.player.replicas import ReplicaDirectory, follow_replicas
from headrace.services.environment.player.turns import TurnClient
from headrace.services.environment.rendering.choice import conversation_renderer
from headrace.services.environment.rendering.conversation import ConversationRenderer
from headrace.services.environment.reporting import report_episodes
from headrace.services.environment.service import EpisodeGroups, report_to
from headrace.services.environment.settings import EnvironmentSettings
from headrace.services.environment.warnings import EpisodeWarnings
from headrace.wire.contracts import DropReason, RolloutGroup
from headrace.wire.errors import ConfigError
from headrace.wire.http import admin_app, serve_http
from headrace.wire.lifecycle import Shutdown
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.own_code import checked_digest, environment_code, recorded_files
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.streams.worker import Worker
from headrace.wire.telemetry import get_logger

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = get_logger("environment")


async def serve(settings: EnvironmentSettings) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code. Raises EnvironmentOutageError, ConfigError."""
    table = settings.environment
    check_digest(settings)
    renderer = conversation_renderer(table.renderer, load_tokenizer(settings.model.path))
    directory = ReplicaDirectory()
    pool, turns = ChildPool(child_config(settings), table.slots), TurnClient(directory)
    shutdown = Shutdown()
    shutdown.install(asyncio.get_running_loop())
    await load_code(pool, renderer)
    worker_id = worker_name(settings)
    events = EventLog(settings.run_dir, worker_id, secrets.token_hex(4))
    broken: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def end(error: Exception) -> None:
        if not broken.done():
            broken.set_result(error)
            shutdown.event.set()

    warnings = EpisodeWarnings(events, deterministic=settings.deterministic)
    failing = report_to(EnvironmentHealth(table.outage_s), end)

    def outcome(group: RolloutGroup) -> None:
        warnings.take(group)
        failing(group)

    groups = episode_groups(settings, renderer, pool, directory, turns, events, outcome)
    broker = RedisBroker(settings.broker.url, settings.run.id)
    await broker.check(settings.broker.connect_timeout_s)
    worker = Worker(
        broker,
        StreamName.EPISODES,
        worker_id,
        groups.handle,
        service="environment",
        lease_s=settings.broker.lease_s,
        capacity=groups.capacity,
        failure=DropReason.ROLLOUT_FAILED,
        observe=lambda outcome: metrics.GROUPS.labels(outcome).inc(),
    )
    metrics.SLOTS.set(table.slots)
    http = await serve_http(admin_app("environment", lambda: None), settings.host, settings.http_port)
    log.info("serving", http_port=http.port, environment=table.label, slots=table.slots)
    try:
        follow = follow_replicas(settings.orchestrator_address, settings.run.id, directory)
        report = report_episodes(
            settings.orchestrator_address,
            groups.in_hand,
            warnings.notes,
            run_id=settings.run.id,
            worker_id=worker_id,
            slots=table.slots,
        )
        await _until_stopped(shutdown, worker.run(shutdown.event), follow, report)
    finally:
        await pool.close()
        await turns.close()
        await http.stop()
        await broker.close()
        events.close()
    if broken.done():
        raise broken.result()
    return 0


async def load_code(pool: ChildPool, renderer: ConversationRenderer) -> None:
    """Loads the user's code before anything is taken, and renders with its tools: errors in either end the start.

    Raises ConfigError, EnvironmentFailedError.
    """
    try:
        async with pool.child() as child:
            renderer.check(child.tools)
    except ConfigError:
        await pool.close()
        raise


def worker_name(settings: EnvironmentSettings) -> str:
    """Its name in streams, events and reports."""
    return f"environment-{settings.instance}"


def episode_groups(
    settings: EnvironmentSettings,
    renderer: ConversationRenderer,
    pool: ChildPool,
    directory: ReplicaDirectory,
    turns: TurnClient,
    events: EventLog,
    outcome: Callable[[RolloutGroup], None],
) -> EpisodeGroups:
    """The handler of the worker's stream."""
    table = settings.environment
    return EpisodeGroups(
        EpisodePlayer(renderer, turns, limits_of(settings)),
        pool,
        directory,
        events,
        worker_id=worker_name(settings),
        digest=settings.environment_digest,
        limit=max(table.slots // settings.batch.group_size, 1),
        hold_s=table.hold_s,
        outcome=outcome,
    )


async def _until_stopped(shutdown: Shutdown, work: Awaitable[None], *beside: Awaitable[None]) -> None:
    """Runs all; when one ends, the others are stopped, and what is in flight is handed back."""
    working, others = asyncio.ensure_future(work), [asyncio.ensure_future(one) for one in beside]
    try:
        await asyncio.wait({working, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        shutdown.event.set()
        for one in others:
            one.cancel()
        await asyncio.gather(working, *others, return_exceptions=True)
    for task in (working, *others):
        if not task.cancelled():
            task.result()


def check_digest(settings: EnvironmentSettings) -> None:
    """Raises ConfigError if the environment's code or config is not that with which the run began."""
    table = settings.environment
    copy = environment_code(settings.run_dir)
    if table.path == copy.folder and recorded_files(copy) is not None:
        checked_digest(copy)  # Also of what is no module: tables, word lists.
    try:
        found = environment_digest(table)
    except OSError as error:
        raise ConfigError(f"environment.path: {error}") from error
    if found != settings.environment_digest:
        raise ConfigError(
            f"environment: the code in {table.path or 'the import path'} or the settings have changed since the run "
            f"began (digest {found}, was {settings.environment_digest}): restore them, or begin a new run"
        )


def child_config(settings: EnvironmentSettings) -> ChildConfig:
    """What each child runs, and its limits."""
    table = settings.environment
    return ChildConfig(
        environment=table.name,
        tools=table.tools,
        path=table.path,
        run_dir=settings.run_dir,
        folders=table.folders,
        variables=table.variables,
        sandbox=table.sandbox == "auto",
        network=table.network,
        memory_mib=table.memory_mib,
        cpu_s=table.cpu_s,
        max_result_chars=table.max_result_chars,
        start_s=table.start_s,
    )


def limits_of(settings: EnvironmentSettings) -> EpisodeLimits:
    """The limits of each episode."""
    table = settings.environment
    return EpisodeLimits(
        max_turns=table.max_turns,
        max_turn_tokens=table.max_turn_tokens,
        context_length=settings.context_length or context_of(settings.model.path),
        episode_s=table.episode_s,
        turn_s=table.turn_s,
        tool_s=table.tool_s,
    )


def context_of(model: Path) -> int:
    """The longest context of a model folder. Raises ConfigError if its config does not say it."""
    try:
        config = json.loads((model / "config.json").read_text())
        return int((config.get("text_config") or config)["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"model.path: {model / 'config.json'} does not say how long a context may be ({error!r}): set "
            "rollout.context_length"
        ) from error


def load_tokenizer(model: Path) -> "PreTrainedTokenizerBase":
    """The model's tokenizer, offline and without remote code. Raises ConfigError if the folder has none."""
    from transformers import AutoTokenizer

    try:
        found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            model, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"model.path: {model} has no readable tokenizer: {error}") from error
    return found
