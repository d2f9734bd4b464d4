"""Writes docs/metrics.md from the metrics that the services declare: `python -m headrace.reference.metric_docs`."""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from prometheus_client.metrics import MetricWrapperBase

DOC = Path(__file__).parents[2] / "docs" / "metrics.md"
MODULES = {
    "every service": ("headrace.wire.metrics", "headrace.wire.tracing.metrics"),
    "orchestrator": ("headrace.services.orchestrator.metrics",),
    "rollout": ("headrace.services.rollout.metrics",),
    "reward": ("headrace.services.reward.metrics",),
    "environment": ("headrace.services.environment.metrics",),
    "trainer": ("headrace.services.trainer.metrics",),
}
_HEAD = """# Metrics

Every service serves Prometheus metrics at `/metrics` of its HTTP port, beside `/healthz` and `/readyz`.
`python -m headrace.reference.metric_docs` writes this page from the services' declarations.

- Every sample has the labels `run` (the run's id) and `replica` (such as `rollout-0`) of the reporting process, so one
  Prometheus holds several runs, and a query can join the metrics of several services of one run: `on (run)`.
- Units are seconds, bytes, and ratios from 0 to 1. A counter ends in `_total`, and its series start at 0. A histogram
  NAME is scraped as `NAME_bucket`, `NAME_sum` and `NAME_count`.
- A label has few values: those listed in its row, reasons of drops, names of scorers. Never a prompt or a rollout.
- The client library adds `process_cpu_seconds_total`, `process_resident_memory_bytes` and similar metrics.
- A rollout replica with the SGLang engine passes the server's own metrics on, under their names
  (`sglang:num_running_reqs`), with the same two labels. If the server does not answer within 2 seconds they are
  missing, and `headrace_rollout_engine_reads_total{outcome="failed"}` counts it. Do not scrape that server yourself.
- A step reports more values than there are gauges here: all are in `RUN/metrics.jsonl`. The pages
  [dashboard](dashboard.md#how-fast-a-step-was) and [GPUs](gpu.md#mfu) define tokens a second, MFU and peak memory.

`deploy/prometheus/` has the scrape config and the alerts ([runbook](runbook.md)), `deploy/grafana/` two dashboards.
To scale rollout replicas: `sum(headrace_rollout_groups_in_flight) / sum(headrace_rollout_groups_capacity)` is 1 when
all are full, and `headrace_orchestrator_stream_lag_entries{stream="prompts"}` counts prompts that no replica has taken.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One metric, for people."""

    service: str
    name: str
    """As scraped; of a histogram without its suffixes."""
    kind: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def series(self) -> tuple[str, ...]:
        """Names that a query may use."""
        suffixes = ("_bucket", "_sum", "_count") if self.kind == "histogram" else ("",)
        return tuple(self.name + suffix for suffix in suffixes)


def describe() -> list[Described]:
    """All metrics of all services, by name. Imports their metrics modules, nothing else of them."""
    found = [
        _described(service, metric)
        for service, modules in MODULES.items()
        for module in modules
        for metric in _declared(importlib.import_module(module))
    ]
    return sorted(found, key=lambda one: one.name)


def as_markdown() -> str:
    """The whole page."""
    parts = [_HEAD]
    for service in MODULES:
        rows = [one for one in describe() if one.service == service]
        parts.append(f"\n## {service.capitalize()}\n\n| name | type | labels | meaning |\n|---|---|---|---|\n")
        parts += [f"| `{one.name}` | {one.kind} | {_names(one.labels)} | {_cell(one.meaning)} |\n" for one in rows]
    return "".join(parts)


def main() -> None:
    """Writes the page."""
    DOC.write_text(as_markdown(), encoding="utf-8")


def _declared(module: ModuleType) -> Iterator[MetricWrapperBase]:
    for value in vars(module).values():
        members = value.values() if isinstance(value, Mapping) else [value]
        # Children, which module-level loops leave behind, have label values.
        yield from (one for one in members if isinstance(one, MetricWrapperBase) and not one._labelvalues)


def _described(service: str, metric: MetricWrapperBase) -> Described:
    (family,) = metric.describe()
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return Described(
        service=service, name=name, kind=family.type, labels=metric._labelnames, meaning=family.documentation
    )


def _names(labels: Iterable[str]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
