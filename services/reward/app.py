"""Wires the reward service up."""

import asyncio
import secrets
import sys

from services.reward import metrics
from services.reward.rubric import Rubric
from services.reward.service import SERVICE_NAME, GroupScorer, RewardServicer
from services.reward.settings import RewardSettings
from wire.contracts import DropReason
from wire.events import EventLog
from wire.http import admin_app, serve_http
from wire.lifecycle import Shutdown
from wire.rpc import serve as serve_rpc
from wire.streams import StreamName
from wire.streams.redis import RedisBroker
from wire.streams.worker import Worker
from wire.telemetry import get_logger

log = get_logger("reward")


def load_rubric(settings: RewardSettings) -> Rubric:
    """The scorers of the config; the user's folder comes last on the import path."""
    if settings.reward.path is not None:
        sys.path.append(str(settings.reward.path))
    return Rubric(settings.reward.scorers)


async def serve(settings: RewardSettings) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code."""
    shutdown = Shutdown()
    shutdown.install(asyncio.get_running_loop())
    events = EventLog(settings.run_dir, f"reward-{settings.instance}", secrets.token_hex(4))
    rubric = load_rubric(settings)
    await asyncio.to_thread(rubric.load)
    scorer = GroupScorer(rubric, settings.reward.timeout_s, events)
    broker = RedisBroker(settings.broker.url, settings.run.id)
    await broker.check(settings.broker.connect_timeout_s)
    worker = Worker(
        broker,
        StreamName.ROLLOUTS,
        f"reward-{settings.instance}",
        scorer.handle,
        service="reward",
        lease_s=settings.broker.lease_s,
        capacity=lambda in_flight: settings.reward.concurrency - in_flight,
        failure=DropReason.SCORER_FAILED,
        observe=lambda outcome: metrics.GROUPS.labels(outcome).inc(),
    )
    metrics.IN_FLIGHT.set_function(lambda: worker.in_flight)
    rpc = await serve_rpc({SERVICE_NAME: RewardServicer(scorer).add_to}, settings.host, settings.grpc_port)
    http = await serve_http(admin_app("reward", lambda: None), settings.host, settings.http_port)
    log.info("serving", grpc_port=rpc.port, http_port=http.port, scorers=scorer.rubric.names)
    try:
        await worker.run(shutdown.event)
    finally:
        await rpc.stop()
        await http.stop()
        await broker.close()
        events.close()
    return 0
