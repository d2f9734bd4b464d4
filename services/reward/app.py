"""Wires the reward service up."""

import asyncio
import secrets
import sys

from headrace.services.reward import metrics
from headrace.services.reward.http_api import LIMITS, HttpScorer, add_routes
from headrace.services.reward.request_limiter import RequestLimiter
from headrace.services.reward.rubric.rubrics import Rubrics, context_of
from headrace.services.reward.service import SERVICE_NAME, GroupScorer, RewardServicer
from headrace.services.reward.settings import RewardSettings
from headrace.services.reward.threads import widen_threads
from headrace.wire.contracts import DropReason
from headrace.wire.http import HttpPolicy, admin_app, serve_http
from headrace.wire.peers.rpc import serve as serve_rpc
from headrace.wire.process.lifecycle import Shutdown
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.streams import StreamName
from headrace.wire.streams.redis import RedisBroker
from headrace.wire.streams.worker import Worker
from headrace.wire.telemetry.logs import get_logger

log = get_logger("reward")


def make_rubrics(settings: RewardSettings) -> Rubrics:
    """The rubrics of the config; the user's folder comes last on the import path. Raises ConfigError."""
    if settings.reward.path is not None:
        sys.path.append(str(settings.reward.path))
    return Rubrics(settings.reward, context_of(settings.reward, run_dir=settings.run_dir))


def http_policy(settings: RewardSettings) -> HttpPolicy:
    """What the service's HTTP lets in."""
    return HttpPolicy.of(settings, hosts=settings.reward.http_hosts, hosts_key="reward.http_hosts", limits=LIMITS)


async def serve(settings: RewardSettings) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code. Raises ScorerOutageError."""
    widen_threads(settings.reward.concurrency)
    shutdown = Shutdown()
    shutdown.install(asyncio.get_running_loop())
    folder = settings.events or RunPaths(settings.run_dir).own_events("reward")
    events = EventLog(settings.run_dir, f"reward-{settings.instance}", secrets.token_hex(4), folder=folder)
    rubrics = make_rubrics(settings)
    await rubrics.load()
    scorer = GroupScorer(rubrics, events)
    broker = RedisBroker(settings.broker.url, settings.run.id)
    await broker.check(settings.broker.connect_timeout_s)
    concurrency = settings.reward.concurrency
    worker = Worker(
        broker,
        StreamName.ROLLOUTS,
        f"reward-{settings.instance}",
        scorer.handle,
        service="reward",
        lease_s=settings.broker.lease_s,
        capacity=lambda in_flight: scorer.capacity(in_flight, concurrency),
        failure=DropReason.SCORER_FAILED,
        observe=lambda outcome: metrics.GROUPS.labels(outcome).inc(),
    )
    metrics.IN_FLIGHT.set_function(lambda: worker.in_flight)
    metrics.CAPACITY.set(concurrency)
    app = admin_app("reward", rubrics.trouble, policy=http_policy(settings))
    limiter = RequestLimiter(concurrency, settings.reward.timeout_s)
    add_routes(app, HttpScorer(rubrics, limiter))
    servicer = RewardServicer(scorer, limiter)
    rpc = await serve_rpc({SERVICE_NAME: servicer.add_to}, settings.rpc_host, settings.grpc_port, ready=rubrics.trouble)
    http = await serve_http(app, settings.host, settings.http_port)
    log.info("serving", grpc=settings.rpc_address(rpc.port), http_port=http.port, scorers=rubrics.names)
    try:
        await _work(worker, scorer, shutdown.event)
    finally:
        await rpc.stop()
        await http.stop()
        await rubrics.close()
        await broker.close()
        events.close()
    return 0


async def _work(worker: Worker, scorer: GroupScorer, stop: asyncio.Event) -> None:
    """Consumes until `stop`. Raises ScorerOutageError when a scorer has been down for too long."""
    scorer.outage.add_done_callback(lambda _: stop.set())
    await worker.run(stop)
    if scorer.outage.done():
        raise scorer.outage.result()
