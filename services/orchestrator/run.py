"""The run as a whole: what follows a publication, when it ends, and the housekeeping beside it."""

import asyncio
import time
from collections.abc import Iterable

from services.orchestrator import metrics
from services.orchestrator.evaluation import Evaluation
from services.orchestrator.issuer import Issuer
from services.orchestrator.meter import Meter
from services.orchestrator.peers import Peers
from services.orchestrator.publication import Publisher
from services.orchestrator.registry import Registry, gpus_of
from services.orchestrator.run_state import RunPhase, RunState
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.status import Status
from services.orchestrator.store import Store
from services.orchestrator.turns import Turns
from services.orchestrator.whereabouts import Whereabouts
from wire.contracts import group_id
from wire.errors import TransientError
from wire.events import EventLog
from wire.streams import Broker, StreamName
from wire.telemetry import get_logger
from wire.v1 import orchestrator_pb2 as pb

log = get_logger("orchestrator.run")


class Run:
    """What the servicer delegates to."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        store: Store,
        state: RunState,
        registry: Registry,
        issuer: Issuer,
        publisher: Publisher,
        evaluation: Evaluation | None,
        events: EventLog,
        broker: Broker,
        peers: Peers,
    ) -> None:
        self._settings = settings
        self._store = store
        self.state = state
        self.registry = registry
        self.issuer = issuer
        self.publisher = publisher
        self.evaluation = evaluation
        self.turns = Turns(registry, publisher, peers, self._evaluating)
        self._events = events
        self._whereabouts = Whereabouts(registry, broker, settings.orchestrator.reconcile_s)
        self._began = time.monotonic()
        """Before a lease has passed, replicas may live that have not registered with this process yet."""

    async def register_trainer(self, request: pb.RegisterTrainerRequest) -> int:
        """A new life of the trainer: whatever the last one was publishing is void."""
        stopping = self.state.wishes.stopping
        incarnation = await self.state.register_trainer(request)
        if stopping and not self.state.wishes.stopping:
            said = "the run was started again: the stop that was asked for before is over"
            self._events.append("operator_action", action="withdraw stop", who="a new start", said=said)
        self.publisher.supersede()
        self.registry.forget_refusals()
        return incarnation

    async def report(self, request: pb.ReportProgressRequest) -> pb.ReportProgressResponse:
        """Takes a report in; when the trainer has finished, the run ends with its last evaluation."""
        if request.incarnation > self.state.incarnation or not self.state.trainer.boot_id:
            return pb.ReportProgressResponse(unknown=True)
        if request.incarnation < self.state.incarnation:
            return pb.ReportProgressResponse(fenced=True)
        await self.state.report(request)
        self.turns.trainer_has = request.has_turn
        wishes = self.state.wishes
        if wishes.checkpoint_done(request.checkpoint_done):
            self._events.append("operator_checkpoint", version=self.state.version)
        if request.stopped and not request.finished:
            self.state.stopped()
            await self.state.notify()
            log.info("run_stopped", version=self.state.version)
        published = self.state.publication
        if published and self.publisher.progress is None and published.version == request.version:
            self._evaluate_if_due(request.version)  # This process was restarted before it was done.
        evaluating = self.evaluation is not None and (
            self.evaluation.running or self.evaluation.due(self.state.version, self.state.max_steps)
        )
        if request.finished and (request.stopped or not evaluating):
            wishes.stop(False)
            self.end()
        alive = self.registry.alive(time.monotonic())
        self.state.trainer.told_stop |= wishes.stopping
        return pb.ReportProgressResponse(
            evaluating=evaluating,
            replicas=sum(replica.replica_id not in wishes.drained for replica in alive),
            stop=wishes.stopping,
            paused=wishes.paused,
            checkpoint=wishes.checkpoint,
            rollout_gpus=gpus_of(alive),
            awaited_at=await self._whereabouts.of(request.awaited[0]) if request.awaited else "",
        )

    def ended(self, groups: Iterable[int]) -> list[int]:
        """Those of some training groups that have a fate."""
        return self._store.ended(groups)

    async def publish(self, request: pb.PublishRequest) -> pb.PublishResponse:
        """Publishes a version, after the evaluation of the one before it."""
        self.state.fence(request.incarnation)
        before = self.state.publication
        if before is not None and before.incarnation == request.incarnation and before.version > request.version:
            log.info("publication_overtaken", version=request.version, current=before.version)
            return pb.PublishResponse()
        if before is not None and before.incarnation == request.incarnation and before.version < request.version:
            self._evaluate_if_due(before.version)  # This process was restarted while it was under way.
        await self._wait_for_evaluation(request.version)
        self.state.fence(request.incarnation)
        self.turns.over()
        self.state.remember_publication(request)
        response = await self.publisher.publish(request)
        self._evaluate_if_due(request.version)
        await self.state.notify()
        return response

    async def _wait_for_evaluation(self, version: int) -> None:
        """Lets the evaluation of an older version end, as long as there is a replica that can serve it."""
        evaluation = self.evaluation
        while evaluation is not None and evaluation.running and evaluation.version < version:
            if not self._can_serve(evaluation.version):
                return
            await evaluation.finished(within_s=0.2)

    def _can_serve(self, version: int) -> bool:
        """Whether a replica serves these weights or newer ones, or may and has not registered here yet."""
        now = time.monotonic()
        return now - self._began <= self.registry.lease_s or any(
            replica.state == pb.REPLICA_STATE_SERVING and replica.version.version >= version
            for replica in self.registry.alive(now)
        )

    async def take_turn(self, incarnation: int) -> str:
        """What comes before the trainer's turn on the GPUs that it shares with the engines, in words; empty = nothing.

        Raises FencedError for a life of the trainer that is over; 0 is one that has not registered yet.
        """
        if incarnation:
            self.state.fence(incarnation)
        else:
            # Whatever the life before was publishing would hold the replicas until its deadlines.
            self.publisher.supersede()
        published = self.state.publication
        if published is not None and published.incarnation == incarnation and self.publisher.progress is None:
            self._evaluate_if_due(published.version)  # This process was restarted before it was done.
        return await self.turns.take()

    def _evaluating(self) -> str:
        """The evaluation that must end before replicas may sleep."""
        evaluation = self.evaluation
        if evaluation is None or not evaluation.running or not self._can_serve(evaluation.version):
            return ""
        return evaluation.waiting_for or f"the evaluation of version {evaluation.version}"

    def _evaluate_if_due(self, version: int) -> None:
        if self.evaluation is not None and self.evaluation.due(version, self.state.max_steps):
            self.evaluation.start(version)

    def end(self) -> None:
        """All steps are done: whatever is still open is trained only if a resume asks for more steps."""
        if self.state.phase is RunPhase.FINISHED:
            return
        names = [group_id(self._settings.run.id, group.group_index) for group in self._store.open_groups()]
        self._events.append("run_ended", version=self.state.version, open_groups=names)
        self.state.finish()
        log.info("run_ended", version=self.state.version, open_groups=len(names))

    def tell_end_again(self) -> None:
        """Where the run had finished before this process began: its last word is told by the newest event log."""
        if self.state.phase is RunPhase.FINISHED:
            self._events.append("run_ended", version=self.state.version, open_groups=[], again=True)

    def register_replica(self, request: pb.RegisterReplicaRequest) -> None:
        """Takes a replica in. What operators asked of an earlier life of that name is over."""
        self.registry.register(request, time.monotonic())
        self.state.wishes.registered(request.replica_id, request.boot_id)

    def look(self, now: float) -> None:
        """Housekeeping; `now` is of the monotonic clock."""
        self.state.wishes.forget([replica.replica_id for replica in self.registry.alive(now)], now)

    def why_not_ready(self) -> str | None:
        """None, also when the run is over; else why it cannot go on."""
        return self.state.reason if self.state.phase is RunPhase.FAILED else None

    def stop(self) -> None:
        """The process is asked to stop before the end: open groups stay open."""
        if self.state.phase is not RunPhase.FINISHED:
            left = [group_id(self._settings.run.id, group.group_index) for group in self._store.open_groups()]
            self._events.append("run_stopped", version=self.state.version, open_groups=left)


async def keep_house(run: Run, broker: Broker, status: Status, meter: Meter, trim_s: float) -> None:
    """Trims what is acked and refreshes gauges, forever."""
    trimmed = time.monotonic()
    while True:
        await asyncio.sleep(1.0)
        now = time.monotonic()
        meter.look(now)
        run.look(now)
        try:
            await _look_at_streams(broker, status)
            memory = await broker.memory()
            metrics.BROKER_USED.set(memory.used_bytes)
            metrics.BROKER_LIMIT.set(memory.limit_bytes)
            if time.monotonic() - trimmed > trim_s:
                trimmed = time.monotonic()
                for stream in StreamName:
                    if stream is not StreamName.DEAD:
                        await broker.trim(stream)
        except TransientError as error:
            log.warning("broker_away", error=str(error))


async def _look_at_streams(broker: Broker, status: Status) -> None:
    for stream in StreamName:
        stats = await broker.stats(stream)
        status.streams[str(stream)] = stats
        metrics.STREAM_LENGTH.labels(stream).set(stats.length)
        metrics.STREAM_PENDING.labels(stream).set(stats.pending)
        metrics.STREAM_LAG.labels(stream).set(stats.undelivered)
        metrics.STREAM_OLDEST.labels(stream).set(stats.oldest_pending_s)
