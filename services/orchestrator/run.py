"""The run as a whole: trainer reports, publications and evaluations, the run's end, and housekeeping."""

import asyncio
import time
from collections.abc import Iterable

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.issuing.evaluation import Evaluation
from headrace.services.orchestrator.issuing.group_locator import GroupLocator
from headrace.services.orchestrator.issuing.issuer import Issuer
from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.publication.coordinator import PublicationCoordinator
from headrace.services.orchestrator.publication.gpu_turns import TurnScheduler
from headrace.services.orchestrator.publication.quarantine import Quarantine
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.services.orchestrator.state.environment_workers import EnvironmentWorkers
from headrace.services.orchestrator.state.registry import Registry, gpus_of
from headrace.services.orchestrator.state.run_metrics import RunMetrics
from headrace.services.orchestrator.state.run_state import RunPhase, RunState
from headrace.services.orchestrator.state.store import Store
from headrace.services.orchestrator.status import Status
from headrace.wire.contracts import group_id
from headrace.wire.errors import TransientError
from headrace.wire.host.disk_fault import raise_noted
from headrace.wire.rundir.events import EventLog
from headrace.wire.streams import Broker, StreamName
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import orchestrator_pb2 as pb

log = get_logger("orchestrator.run")
_CERTIFICATE_S = 60.0


class Orchestrator:
    """Implements the requests that the servicer delegates."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        store: Store,
        state: RunState,
        registry: Registry,
        issuer: Issuer,
        publisher: PublicationCoordinator,
        evaluation: Evaluation | None,
        events: EventLog,
        broker: Broker,
        clients: Clients,
    ) -> None:
        self._settings = settings
        self._store = store
        self.state = state
        self.registry = registry
        self.issuer = issuer
        self.publisher = publisher
        self.evaluation = evaluation
        self.turns = TurnScheduler(registry, publisher, clients, self._evaluating)
        self.quarantine = Quarantine(state, registry, events)
        self._events = events
        self.environments = EnvironmentWorkers(registry.lease_s)
        self._locator = GroupLocator(registry, broker, environments=self.environments)
        self._began = time.monotonic()
        """Start time: until one lease has passed, live replicas may not have registered with this process yet."""

    async def register_trainer(self, request: pb.RegisterTrainerRequest) -> int:
        """Registers a new incarnation of the trainer; cancels the publications of the previous one."""
        stopping = self.state.operator_requests.stopping
        incarnation = await self.state.register_trainer(request)
        if stopping and not self.state.operator_requests.stopping:
            said = "the run was restarted: the earlier stop request no longer applies"
            self._events.append("operator_action", action="withdraw stop", who="a new start", said=said)
        self.publisher.supersede()
        self.registry.forget_refusals()
        return incarnation

    async def report(self, request: pb.ReportProgressRequest) -> pb.ReportProgressResponse:
        """Records a trainer's report; when the trainer has finished, ends the run after its last evaluation."""
        if request.incarnation > self.state.incarnation or not self.state.trainer.boot_id:
            return pb.ReportProgressResponse(unknown=True)
        if request.incarnation < self.state.incarnation:
            return pb.ReportProgressResponse(fenced=True)
        await self.state.report(request)
        self.turns.trainer_has = request.has_turn
        operator_requests = self.state.operator_requests
        if operator_requests.checkpoint_done(request.checkpoint_done):
            self._events.append("operator_checkpoint", version=self.state.version)
        if request.stopped and not request.finished:
            self.state.stopped()
            await self.state.notify()
            log.info("run_stopped", version=self.state.version)
        published = self.state.publication
        if published and self.publisher.progress is None and published.version == request.version:
            self._evaluate_if_due(request.version)  # In case this process was restarted before it was done.
        evaluating = self.evaluation is not None and (
            self.evaluation.running or self.evaluation.due(self.state.version, self.state.max_steps)
        )
        if request.finished and (request.stopped or not evaluating):
            operator_requests.stop(False)
            self.end()
        alive = self.registry.alive(time.monotonic())
        self.state.trainer.knows_stop |= operator_requests.stopping
        return pb.ReportProgressResponse(
            evaluating=evaluating,
            replicas=sum(replica.replica_id not in operator_requests.drained for replica in alive),
            stop=operator_requests.stopping,
            paused=operator_requests.paused,
            checkpoint=operator_requests.checkpoint,
            rollout_gpus=gpus_of(alive),
            awaited_at=await self._locator.of(request.awaited[0]) if request.awaited else "",
        )

    def ended(self, groups: Iterable[int]) -> list[int]:
        """Those of the given training groups that have a fate."""
        return self._store.ended(groups)

    async def publish(self, request: pb.PublishRequest) -> pb.PublishResponse:
        """Publishes a version, after the evaluation of the previous one."""
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
        """Waits for the evaluation of an older version, as long as some replica can serve it."""
        evaluation = self.evaluation
        while evaluation is not None and evaluation.running and evaluation.version < version:
            if not self._can_serve(evaluation.version):
                return
            await evaluation.finished(within_s=0.2)

    def _can_serve(self, version: int) -> bool:
        """Whether a replica serves this version or a newer one, or may do so without having registered here yet."""
        now = time.monotonic()
        return now - self._began <= self.registry.lease_s or any(
            replica.state == pb.REPLICA_STATE_SERVING and replica.version.version >= version
            for replica in self.registry.alive(now)
        )

    async def take_turn(self, incarnation: int) -> str:
        """Describes what the trainer's turn on the shared GPUs waits for; empty = granted.

        Raises FencedError for an incarnation that is over; 0 is a trainer that has not registered yet.
        """
        if incarnation:
            self.state.fence(incarnation)
        else:
            # The previous incarnation's publications would hold the replicas until their deadlines.
            self.publisher.supersede()
        published = self.state.publication
        if published is not None and published.incarnation == incarnation and self.publisher.progress is None:
            self._evaluate_if_due(published.version)  # This process was restarted before it was done.
        return await self.turns.take()

    def _evaluating(self) -> str:
        """Describes the evaluation that must end before replicas may sleep; empty if there is none."""
        evaluation = self.evaluation
        if evaluation is None or not evaluation.running or not self._can_serve(evaluation.version):
            return ""
        return evaluation.waiting_for or f"the evaluation of version {evaluation.version}"

    def _evaluate_if_due(self, version: int) -> None:
        if self.evaluation is not None and self.evaluation.due(version, self.state.max_steps):
            self.evaluation.start(version, self.state.max_steps)

    def end(self) -> None:
        """Ends the run after its last step; groups still open are trained only if a resume asks for more steps."""
        if self.state.phase is RunPhase.FINISHED:
            return
        names = [group_id(self._settings.run.id, group.group_index) for group in self._store.open_groups()]
        self._events.append("run_ended", version=self.state.version, open_groups=names)
        self.state.finish()
        log.info("run_ended", version=self.state.version, open_groups=len(names))

    def repeat_end(self) -> None:
        """Repeats `run_ended` in this process's event log if the run had finished before: readers use the last log."""
        if self.state.phase is RunPhase.FINISHED:
            self._events.append("run_ended", version=self.state.version, open_groups=[], again=True)

    def register_replica(self, request: pb.RegisterReplicaRequest) -> None:
        """Registers a replica; ends operator requests that were for an earlier boot of that name."""
        self.registry.register(request, time.monotonic())
        self.state.operator_requests.registered(request.replica_id, request.boot_id)

    def look(self, now: float) -> None:
        """Housekeeping; `now` is in monotonic seconds."""
        self.state.operator_requests.forget([replica.replica_id for replica in self.registry.alive(now)], now)

    def why_not_ready(self) -> str | None:
        """None unless the run has failed; then the reason."""
        return self.state.reason if self.state.phase is RunPhase.FAILED else None

    def stop(self) -> None:
        """Logs that the process stops before the run's end; open groups stay open."""
        if self.state.phase is not RunPhase.FINISHED:
            left = [group_id(self._settings.run.id, group.group_index) for group in self._store.open_groups()]
            self._events.append("run_stopped", version=self.state.version, open_groups=left)


async def keep_house(run: Orchestrator, broker: Broker, status: Status, run_metrics: RunMetrics, trim_s: float) -> None:
    """Housekeeping loop: trims acknowledged entries and refreshes gauges, forever."""
    trimmed, certified = time.monotonic(), 0.0
    while True:
        await asyncio.sleep(1.0)
        raise_noted()
        now = time.monotonic()
        run_metrics.look(now)
        run.look(now)
        if not certified or now - certified > _CERTIFICATE_S:
            certified = now
            await _look_at_certificate(broker)
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


async def _look_at_certificate(broker: Broker) -> None:
    try:
        metrics.BROKER_CERTIFICATE.set(await broker.certificate_expires())
    except TransientError as error:
        # What is open goes on: it is the next lost connection that would not come back.
        log.warning("broker_takes_no_connection", error=str(error))


async def _look_at_streams(broker: Broker, status: Status) -> None:
    for stream in StreamName:
        stats = await broker.stats(stream)
        if stream is StreamName.EPISODES and not stats.length and str(stream) not in status.streams:
            continue  # A run without environments has no such stream.
        status.streams[str(stream)] = stats
        metrics.STREAM_LENGTH.labels(stream).set(stats.length)
        metrics.STREAM_PENDING.labels(stream).set(stats.pending)
        metrics.STREAM_LAG.labels(stream).set(stats.undelivered)
        metrics.STREAM_OLDEST.labels(stream).set(stats.oldest_pending_s)
