"""The HTTP API of a replica: open while the engine still starts, which may take minutes (alive, but not ready)."""

import time
from collections.abc import Iterable

from fastapi import FastAPI
from prometheus_client.metrics_core import Metric

from headrace.services.rollout.engine_metrics import EngineReader
from headrace.services.rollout.engines.protocol import Engine
from headrace.services.rollout.replica.drain import add_drain, why_not_ready
from headrace.services.rollout.replica.gate import Gate
from headrace.services.rollout.replica.groups import GroupGenerator
from headrace.wire.http import HttpPolicy, admin_app


class ReplicaHttpServer:
    """Health, readiness and metrics from the start of the process. Used on the event loop only."""

    def __init__(self) -> None:
        self.gate = Gate()
        self._doing, self._since = "the process starts", time.monotonic()
        self._generator: GroupGenerator | None = None
        self._reader: EngineReader | None = None
        self._retired = False

    def app(self, policy: HttpPolicy) -> FastAPI:
        """`/healthz`, `/readyz`, `/metrics` and `/drain`."""
        app = admin_app("rollout", self.why_not_ready, self.engine_metrics, policy=policy)
        add_drain(app, self)
        return app

    def starts(self, what: str) -> None:
        """Sets what the start is doing now."""
        self._doing, self._since = what, time.monotonic()

    def has_started(self, engine: Engine, generator: GroupGenerator) -> None:
        """Marks the start as done: readiness now depends on the replica's state."""
        self._generator, self._reader = generator, EngineReader(engine)
        if self._retired:
            generator.retire()

    def has_ended(self) -> None:
        """Marks the engine as gone: it has no metrics any more."""
        self._reader = None

    def why_not_ready(self) -> str | None:
        """None while prompts are taken, or will be after a publication; otherwise the reason."""
        if self._generator is None:
            return f"{self.gate.state}: {self._doing} ({time.monotonic() - self._since:.0f} s so far)"
        return why_not_ready(self.gate, self._generator)

    async def engine_metrics(self) -> Iterable[Metric]:
        """The engine's own metrics; none before it has started."""
        return await self._reader.read() if self._reader else ()

    def retire(self) -> None:
        """Stops taking prompts, permanently; also effective if called during the start."""
        self._retired = True
        if self._generator is not None:
            self._generator.retire()

    @property
    def in_flight(self) -> int:
        """Number of groups in flight."""
        return self._generator.in_flight if self._generator is not None else 0
