"""Collects the run's status, which `headrace status`, the live table and the dashboard show."""

import time
from dataclasses import asdict
from pathlib import Path

from headrace.services.orchestrator.issuing.evaluation import Evaluation
from headrace.services.orchestrator.issuing.issuer import Issuer
from headrace.services.orchestrator.publication.coordinator import PublicationCoordinator
from headrace.services.orchestrator.state.environment_workers import EnvironmentWorkers
from headrace.services.orchestrator.state.registry import STATE_NAMES, Registry, Replica
from headrace.services.orchestrator.state.run_state import RunState
from headrace.services.orchestrator.state.store import Store
from headrace.wire.api.status import (
    Credit,
    EvaluationRow,
    GroupCounts,
    PublicationStatus,
    ReplicaStatus,
    RunProgress,
    StreamStatus,
    TrainerStatus,
)
from headrace.wire.peers.outage import unreachable
from headrace.wire.streams import StreamStats


class Status:
    """Collects the status of all parts; `streams` is filled by the housekeeping loop."""

    def __init__(
        self,
        store: Store,
        state: RunState,
        registry: Registry,
        issuer: Issuer,
        publisher: PublicationCoordinator,
        evaluation: Evaluation | None,
        environments: EnvironmentWorkers | None = None,
        run_dir: Path | None = None,
    ) -> None:
        self._store = store
        self._state = state
        self._registry = registry
        self._issuer = issuer
        self._publisher = publisher
        self._evaluation = evaluation
        self._run_dir = run_dir
        self._environments = environments or EnvironmentWorkers(registry.lease_s)
        self.streams: dict[str, StreamStats] = {}

    def view(self) -> RunProgress:
        """The status of all parts."""
        state = self._state
        counts = self._store.counts()
        trained, num_open = counts.pop("trained", 0), counts.pop("open", 0)
        one = self._evaluation
        evaluating = _unix_pair((one.since, one.until) if one and one.waiting_for else None)
        waiting = _unix_pair(self._issuer.waiting_times)
        return RunProgress(
            state=self.state,
            reason=state.reason,
            step=state.version,
            max_steps=state.max_steps,
            version=state.version,
            incarnation=state.incarnation,
            eval=self.evals(),
            evaluating=one.waiting_for if one else "",
            evaluating_since=evaluating[0],
            evaluating_until=evaluating[1],
            waiting_for=self._issuer.waiting_for,
            waiting_since=waiting[0],
            waiting_until=waiting[1],
            credit=Credit(issued=num_open, limit=self._issuer.limit),
            groups=GroupCounts(
                issued=trained + num_open + sum(counts.values()), trained=trained, dropped=counts, open=num_open
            ),
            trainer=self.trainer(),
            replicas=self.replicas(),
            streams=self.streams_view(),
            publication=self._publication(),
            environments=self._environments.view(time.monotonic()),
            unreachable=tuple(unreachable(self._run_dir)) if self._run_dir else (),
        )

    @property
    def state(self) -> str:
        """The run's phase."""
        return str(self._state.phase)

    def streams_view(self) -> dict[str, StreamStatus]:
        """Stream name -> statistics of the last housekeeping pass."""
        return {name: StreamStatus(**asdict(stats)) for name, stats in self.streams.items()}

    def evals(self) -> tuple[EvaluationRow, ...]:
        """All evaluations so far."""
        return tuple(map(EvaluationRow.of, self._evaluation.results)) if self._evaluation else ()

    def trainer(self) -> TrainerStatus:
        """The trainer's state, what it waits for, and its metrics."""
        trainer = self._state.trainer
        return TrainerStatus(
            state="finished" if trainer.finished else ("alive" if trainer.boot_id else "absent"),
            waiting_for=trainer.waiting_for,
            waiting_since=_unix(trainer.waiting_since) if trainer.waiting_for else None,
            waiting_until=_unix(trainer.waiting_until) if trainer.waiting_until else None,
            waiting_share=trainer.waiting_share,
            metrics=dict(trainer.metrics),
        )

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """Replicas with a live lease."""
        return tuple(self._replica(replica) for replica in self._registry.alive(time.monotonic()))

    def _replica(self, replica: Replica) -> ReplicaStatus:
        publication, times = self._publication_to(replica.replica_id)
        route, route_reason = self._route_to(replica)
        status = ReplicaStatus(
            id=replica.replica_id,
            address=replica.address,
            state=STATE_NAMES[replica.state],
            version=str(replica.version),
            proof=replica.proof,
            proof_note=replica.proof_note,
            in_flight_rollouts=replica.beat.in_flight_rollouts,
            waiting_share=replica.beat.waiting_share,
            waiting_for=replica.beat.waiting_for,
            waiting_since=_unix(replica.waiting_since) if replica.beat.waiting_for else None,
            seen=_unix(replica.seen),
            tokens_per_second=round(replica.tokens_per_second, 1),
            publication=publication,
            route=route,
            route_reason=route_reason,
            refused=replica.refused,
            engine=replica.engine,
        )
        if times is None:
            return status
        since, until = _unix_pair(times)
        return status.model_copy(update={"publication_since": since, "publication_until": until})

    def _publication(self) -> PublicationStatus | None:
        progress = self._publisher.progress
        if progress is None:
            return None
        return PublicationStatus(
            version=str(progress.version),
            phase=progress.phase,
            waiting_for=", ".join(progress.waiting_for),
            seconds=round(time.monotonic() - progress.since, 1),
            since=_unix(progress.since),
            deadline_s=progress.deadline_s,
            routes=dict(progress.routes),
        )

    def _publication_to(self, replica_id: str) -> tuple[str, tuple[float, float] | None]:
        """The replica's publication phase, such as `transfer of 1.7 over gloo`, with its times; empty without one."""
        for progress in self._publisher.sessions:
            if replica_id in progress.waiting_for:
                way = progress.routes.get(replica_id)
                said = f"{progress.phase} of {progress.version}" + (f" over {way}" if way else "")
                return said, (progress.since, progress.since + progress.deadline_s)
        return "", None

    def _route_to(self, replica: Replica) -> tuple[str, str]:
        """The route of the next weights, and why it is not the best one; empty before there is a trainer."""
        if not self._state.trainer.boot_id:
            return "", ""
        route = self._publisher.route(replica)
        return route.backend, route.reason


def _unix_pair(times: tuple[float, float] | None) -> tuple[float | None, float | None]:
    return (_unix(times[0]), _unix(times[1])) if times else (None, None)


def _unix(monotonic: float) -> float:
    return round(time.time() - time.monotonic() + monotonic, 1)
