"""Metrics that every service has, and the text exposition of all of them.

Each sample carries the labels `run` and `replica` of its process, so that one Prometheus can hold several runs and a
query can join the series of different services.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from importlib import metadata
from platform import python_version

from prometheus_client import REGISTRY, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from headrace.wire.contracts import DropReason

# When a series began: Prometheus does without, and they would double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]

BUILD_INFO = Gauge(
    "headrace_build_info", "Always 1; labels name the build that the process runs.", ["version", "python"]
)
EVENT_LOOP_LAG = Gauge(
    "headrace_event_loop_lag_seconds", "Largest delay of a timer of the event loop in the last 30 seconds."
)
REDELIVERIES = Counter(
    "headrace_stream_redeliveries",
    "Entries taken that another consumer, or an earlier process, had not acked.",
    ["stream"],
)
DEAD_LETTERS = Counter(
    "headrace_dead_letters",
    "Groups given up by this process; their payload is kept for inspection.",
    ["stream", "reason"],
)

RPC_REFUSED = Counter(
    "headrace_rpc_refused",
    "gRPC calls without a token that is accepted (unauthenticated), of a role that the method is not for, or too many "
    "in a second (resource_exhausted).",
    ["reason"],
)
HTTP_REFUSED = Counter(
    "headrace_http_refused",
    "HTTP requests that were refused: a foreign host or origin, a content_type other than JSON, no token, one of "
    "another role, a body that is too_large or slow, no room for it (busy), what is no HTTP (malformed), an answer "
    "left unread, too many connections.",
    ["reason"],
)
ACCESS_REREAD = Counter(
    "headrace_access_reread",
    "Changes of the files of tokens and certificates that were taken, or refused: then the old ones stay in use.",
    ["part", "outcome"],
)
CERTIFICATE_EXPIRES = Gauge(
    "headrace_certificate_expires_timestamp_seconds",
    "When the certificate that this process shows expires, as Unix time; 0 without certificates.",
)

_MEMORY_S = 30.0
_BEAT_S = 0.25
_SERVICES = ("environment", "orchestrator", "reward", "rollout", "trainer")
_process: dict[str, str] = {}
_foreign: set[str] = set()
"""Prefixes of the metrics of other services. A process that the fork server starts has them all: they would stand at 0,
and an alert on the least free disk would fire for disks at which the process never looks."""


def describe(service: str, run: str, instance: str) -> None:
    """Labels every later sample of this process with its run and its replica, such as `rollout-0`.

    From then on the process exposes the metrics of its own service, and those that every service has.
    """
    _foreign.clear()
    _foreign.update(f"headrace_{other}_" for other in _SERVICES if other != service)
    _process.update(run=run, replica=f"{service}-{instance}")
    BUILD_INFO.labels(_version(), python_version()).set(1)


def exposition(engine: Iterable[Metric] = ()) -> bytes:
    """The metrics of this process and of its service, and the metrics of an engine that it drives."""
    return generate_latest(_Labelled(engine))


def read_engine_metrics(text: str) -> list[Metric]:
    """The families of an engine's own exposition; raises ValueError for other text.

    Only those named `engine:...`: the `process_...` and `python_...` of its process would stand for ours.
    """
    return [family for family in text_string_to_metric_families(text) if ":" in family.name]


def expect_dead_letters(stream: str) -> None:
    """Creates the counters at 0 instead of at the first loss: otherwise their first rise could not be seen."""
    REDELIVERIES.labels(stream)
    for reason in DropReason:
        DEAD_LETTERS.labels(stream, reason)


class _Labelled(Collector):
    """The registry and an engine's families, as one whole."""

    def __init__(self, engine: Iterable[Metric]) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        """Each family with the process's labels; a sample's own label of that name wins."""
        own = (family for family in REGISTRY.collect() if not family.name.startswith(tuple(_foreign)))
        for family in (*own, *self._engine):
            found = Metric(family.name, family.documentation, family.type, family.unit)
            found.samples = [sample._replace(labels=_process | sample.labels) for sample in family.samples]
            yield found


class LoopWatch:
    """Measures how late the timers of the running loop fire."""

    def __init__(self) -> None:
        self._lags: deque[tuple[float, float]] = deque()
        self._task = asyncio.create_task(self._beat())
        EVENT_LOOP_LAG.set_function(self.read)

    def read(self) -> float:
        """Seconds (from any thread)."""
        now = time.monotonic()
        return max((lag for at, lag in tuple(self._lags) if now - at < _MEMORY_S), default=0.0)

    def stop(self) -> None:
        """The gauge keeps its last value."""
        last = self.read()
        EVENT_LOOP_LAG.set_function(lambda: last)
        self._task.cancel()

    async def _beat(self) -> None:
        while True:
            begin = time.monotonic()
            await asyncio.sleep(_BEAT_S)
            now = time.monotonic()
            self._lags.append((now, max(now - begin - _BEAT_S, 0.0)))
            while now - self._lags[0][0] > _MEMORY_S:
                self._lags.popleft()


def _version() -> str:
    try:
        return metadata.version("headrace")
    except metadata.PackageNotFoundError:
        return "unknown"
