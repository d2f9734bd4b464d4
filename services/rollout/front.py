"""The HTTP face of a replica. It is open before there is an engine, whose start takes minutes: alive, and not ready."""

import time
from collections.abc import Iterable

from fastapi import FastAPI
from prometheus_client.metrics_core import Metric

from services.rollout.drain import add_drain, why_not_ready
from services.rollout.engines.protocol import Engine
from services.rollout.gate import Gate
from services.rollout.groups import GroupGenerator
from services.rollout.meter import EngineReader
from wire.http import admin_app


class Front:
    """What a replica tells of itself from its first moment on. Lives on the event loop."""

    def __init__(self) -> None:
        self.gate = Gate()
        self._doing, self._since = "the process starts", time.monotonic()
        self._generator: GroupGenerator | None = None
        self._reader: EngineReader | None = None
        self._retired = False

    def app(self) -> FastAPI:
        """`/healthz`, `/readyz`, `/metrics` and `/drain`."""
        app = admin_app("rollout", self.why_not_ready, self.engine_metrics)
        add_drain(app, self)
        return app

    def starts(self, what: str) -> None:
        """What the start is waiting for from now on."""
        self._doing, self._since = what, time.monotonic()

    def has_started(self, engine: Engine, generator: GroupGenerator) -> None:
        """From now on the replica's own state tells whether it is ready."""
        self._generator, self._reader = generator, EngineReader(engine)
        if self._retired:
            generator.retire()

    def why_not_ready(self) -> str | None:
        """None while prompts are taken, or will be after a publication; else the reason."""
        if self._generator is None:
            return f"{self.gate.state}: {self._doing} ({time.monotonic() - self._since:.0f} s so far)"
        return why_not_ready(self.gate, self._generator)

    async def engine_metrics(self) -> Iterable[Metric]:
        """The engine's own; none before it has started."""
        return await self._reader.read() if self._reader else ()

    def retire(self) -> None:
        """No prompts, or no more of them, for good: also once it has started."""
        self._retired = True
        if self._generator is not None:
            self._generator.retire()

    @property
    def in_flight(self) -> int:
        """Groups."""
        return self._generator.in_flight if self._generator is not None else 0
