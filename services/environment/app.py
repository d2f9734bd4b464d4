"""Wires the environment service up."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

from headrace.services.environment import metrics
from headrace.services.environment.cast import Cast, cast_of
from headrace.services.environment.health import EnvironmentHealth
from headrace.services.environment.identity import environment_digest
from headrace.services.environment.player.replicas import ReplicaDirectory, follow_replicas
from headrace.services.environment.player.turns import TurnClient
from headrace.services.environment.reporting import report_episodes
from headrace.services.environment.service import EpisodeGroups, report_to
from headrace.services.environment.settings import EnvironmentSettings
from headrace.services.environment.warnings import EpisodeWarnings
from headrace.wire.contracts import DropReason, RolloutGroup
from headrace.wire.errors import ConfigError
from headrace.wire.http import HttpPolicy, admin_app, serve_http
from headrace.wire.process.lifecycle import Shutdown, until_first_end
from headrace.wire.process.threads import start_threads
from headrace.wire.rendering.tokenizers import load_tokenizer
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.own_code import checked_digest, environment_code, recorded_files
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.streams.worker import Worker
from headrace.wire.telemetry.logs import get_logger

log = get_logger("environment")


async def serve(settings: EnvironmentSettings) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code. Raises EnvironmentOutageError, ConfigError."""
    start_threads()
    table = settings.environment
    check_digest(settings)
    shutdown = Shutdown()
    shutdown.install(asyncio.get_running_loop())
    worker_id, directory = worker_name(settings), ReplicaDirectory()
    events = EventLog(settings.run_dir, worker_id, secrets.token_hex(4), folder=_own_folder(settings))
    turns = TurnClient(directory)
    warnings, broken = EpisodeWarnings(events, deterministic=settings.deterministic), _Broken(shutdown)
    failing = report_to(EnvironmentHealth(table.outage_s), broken.take)

    def outcome(group: RolloutGroup) -> None:
        warnings.take(group)
        failing(group)

    cast = cast_of(settings, load_tokenizer(settings.model.path), turns, table.slots, warnings.take_turns)
    await cast.load()
    groups = episode_groups(settings, cast, directory, events, outcome)
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
    app = admin_app("environment", lambda: None, policy=HttpPolicy.of(settings))
    http = await serve_http(app, settings.host, settings.http_port)
    log.info("serving", http_port=http.port, environment=table.label, slots=table.slots)
    try:
        beside = _beside(settings, directory, groups, warnings)
        # Sandboxes are cleared away before their groups are handed back.
        await until_first_end(shutdown, lambda: None, worker.run(shutdown.event), *beside, close_s=None)
    finally:
        await cast.pool.close()
        await turns.close()
        await http.stop()
        await broker.close()
        events.close()
    if broken.error is not None:
        raise broken.error
    return 0


def _beside(
    settings: EnvironmentSettings, directory: ReplicaDirectory, groups: EpisodeGroups, warnings: EpisodeWarnings
) -> tuple[Awaitable[None], Awaitable[None]]:
    """What runs beside the work: the list of replicas comes in, reports of the episodes go out."""
    follow = follow_replicas(settings.orchestrator_address, settings.run.id, directory)
    report = report_episodes(
        settings.orchestrator_address,
        groups.in_hand,
        warnings.notes,
        run_id=settings.run.id,
        worker_id=worker_name(settings),
        slots=settings.environment.slots,
    )
    return follow, report


class _Broken:
    """Holds the first error that ends the run, and stops the service by it."""

    def __init__(self, shutdown: Shutdown) -> None:
        self._shutdown = shutdown
        self.error: Exception | None = None

    def take(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
            self._shutdown.event.set()


def worker_name(settings: EnvironmentSettings) -> str:
    """Its name in streams, events and reports."""
    return f"environment-{settings.instance}"


def episode_groups(
    settings: EnvironmentSettings,
    cast: Cast,
    directory: ReplicaDirectory,
    events: EventLog,
    outcome: Callable[[RolloutGroup], None],
) -> EpisodeGroups:
    """The handler of the worker's stream."""
    table = settings.environment
    return EpisodeGroups(
        cast.player,
        cast.pool,
        directory,
        events,
        worker_id=worker_name(settings),
        digest=settings.environment_digest,
        limit=max(table.slots // settings.batch.group_size, 1),
        hold_s=table.hold_s,
        outcome=outcome,
        kept_ids=_own_folder(settings) / RunPaths(settings.run_dir).played_ids.name,
    )


def _own_folder(settings: EnvironmentSettings) -> Path:
    """The only folder of the run directory that this service may write to."""
    return settings.events or RunPaths(settings.run_dir).own_events("environment")


def check_digest(settings: EnvironmentSettings) -> None:
    """Raises ConfigError if the environment's code or config is not that with which the run began."""
    table = settings.environment
    copy = environment_code(settings.run_dir)
    if table.path == copy.folder and recorded_files(copy) is not None:
        checked_digest(copy)  # Also of files that are not modules: tables, word lists.
    try:
        found = environment_digest(table)
    except OSError as error:
        raise ConfigError(f"environment.path: {error}") from error
    if found != settings.environment_digest:
        raise ConfigError(
            f"environment: the code in {table.path or 'the import path'} or the settings have changed since the run "
            f"began (digest {found}, was {settings.environment_digest}): restore them, or begin a new run"
        )
