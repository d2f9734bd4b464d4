"""The run's status as one JSON object, shown by `headrace status`, the live table and the dashboard."""

import time
from dataclasses import asdict
from typing import Any

from headrace.services.orchestrator.issuing.evaluation import Evaluation
from headrace.services.orchestrator.issuing.issuer import Issuer
from headrace.services.orchestrator.publication.coordinator import PublicationCoordinator
from headrace.services.orchestrator.state.registry import STATE_NAMES, Registry, Replica
from headrace.services.orchestrator.state.run_state import RunState
from headrace.services.orchestrator.state.store import Store
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
    ) -> None:
        self._store = store
        self._state = state
        self._registry = registry
        self._issuer = issuer
        self._publisher = publisher
        self._evaluation = evaluation
        self.streams: dict[str, StreamStats] = {}

    def view(self) -> dict[str, Any]:
        """The whole status, JSON values only; times are seconds."""
        state = self._state
        counts = self._store.counts()
        trained, num_open = counts.pop("trained", 0), counts.pop("open", 0)
        return {
            "state": self.state,
            "reason": state.reason,
            "step": state.version,
            "max_steps": state.max_steps,
            "version": state.version,
            "incarnation": state.incarnation,
            "eval": self.evals(),
            "evaluating": self._evaluation.waiting_for if self._evaluation else "",
            **self._evaluating_times(),
            "waiting_for": self._issuer.waiting_for,
            **_times("waiting", self._issuer.waiting_times),
            "credit": {"issued": num_open, "limit": self._issuer.limit},
            "groups": {
                "issued": trained + num_open + sum(counts.values()),
                "trained": trained,
                "dropped": counts,
                "open": num_open,
            },
            "trainer": self.trainer(),
            "replicas": self.replicas(),
            "streams": self.streams_view(),
            "publication": self._publication(),
        }

    @property
    def state(self) -> str:
        """The run's phase."""
        return str(self._state.phase)

    def streams_view(self) -> dict[str, dict[str, Any]]:
        """Stream name -> statistics of the last housekeeping pass."""
        return {name: asdict(stats) for name, stats in self.streams.items()}

    def evals(self) -> list[dict[str, Any]]:
        """All evaluations so far."""
        return [asdict(result) for result in self._evaluation.results] if self._evaluation else []

    def trainer(self) -> dict[str, Any]:
        """The trainer's state, what it waits for, and its metrics."""
        trainer = self._state.trainer
        return {
            "state": "finished" if trainer.finished else ("alive" if trainer.boot_id else "absent"),
            "waiting_for": trainer.waiting_for,
            "waiting_since": _unix(trainer.waiting_since) if trainer.waiting_for else None,
            "waiting_until": _unix(trainer.waiting_until) if trainer.waiting_until else None,
            "waiting_share": trainer.waiting_share,
            "metrics": trainer.metrics,
        }

    def replicas(self) -> list[dict[str, Any]]:
        """Replicas with a live lease."""
        return [
            {
                "id": replica.replica_id,
                "address": replica.address,
                "state": STATE_NAMES[replica.state],
                "version": str(replica.version),
                "proof": replica.proof,
                "proof_note": replica.proof_note,
                "in_flight_rollouts": replica.in_flight_rollouts,
                "waiting_share": replica.waiting_share,
                "waiting_for": replica.waiting_for,
                "waiting_since": _unix(replica.waiting_since) if replica.waiting_for else None,
                "seen": _unix(replica.seen),
                "tokens_per_second": round(replica.tokens_per_second, 1),
                **self._publication_to(replica.replica_id),
                **self._route_to(replica),
                "refused": replica.refused,
                "engine": replica.engine,
            }
            for replica in self._registry.alive(time.monotonic())
        ]

    def _publication(self) -> dict[str, Any] | None:
        progress = self._publisher.progress
        if progress is None:
            return None
        return {
            "version": str(progress.version),
            "phase": progress.phase,
            "waiting_for": ", ".join(progress.waiting_for),
            "seconds": round(time.monotonic() - progress.since, 1),
            "since": _unix(progress.since),
            "deadline_s": progress.deadline_s,
            "routes": progress.routes,
        }

    def _publication_to(self, replica_id: str) -> dict[str, Any]:
        """The replica's publication phase, such as `transfer of 1.7 over gloo`, with its times; empty without one."""
        for progress in self._publisher.sessions:
            if replica_id in progress.waiting_for:
                way = progress.routes.get(replica_id)
                said = f"{progress.phase} of {progress.version}" + (f" over {way}" if way else "")
                times = (progress.since, progress.since + progress.deadline_s)
                return {"publication": said, **_times("publication", times)}
        return {"publication": ""}

    def _route_to(self, replica: Replica) -> dict[str, str]:
        """The route of the next weights, and why it is not the best one; empty before there is a trainer."""
        if not self._state.trainer.boot_id:
            return {"route": "", "route_reason": ""}
        route = self._publisher.route(replica)
        return {"route": route.backend, "route_reason": route.reason}

    def _evaluating_times(self) -> dict[str, float | None]:
        one = self._evaluation
        return _times("evaluating", (one.since, one.until) if one and one.waiting_for else None)


def _times(what: str, times: tuple[float, float] | None) -> dict[str, float | None]:
    since, until = (_unix(times[0]), _unix(times[1])) if times else (None, None)
    return {f"{what}_since": since, f"{what}_until": until}


def _unix(monotonic: float) -> float:
    return round(time.time() - time.monotonic() + monotonic, 1)
