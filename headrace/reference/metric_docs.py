"""The tables of docs/metrics.md, made of the metrics that the services declare."""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from prometheus_client.metrics import MetricWrapperBase

from headrace.reference.marked import replaced, table

_LAST = " Of the last step."
DOC = Path(__file__).parents[2] / "docs" / "metrics.md"
MODULES = {
    "every service": ("headrace.wire.telemetry.metrics", "headrace.wire.tracing.metrics"),
    "orchestrator": ("headrace.services.orchestrator.metrics",),
    "rollout": ("headrace.services.rollout.metrics",),
    "reward": ("headrace.services.reward.metrics",),
    "environment": ("headrace.services.environment.metrics",),
    "trainer": ("headrace.services.trainer.metrics",),
}


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


def written(page: str) -> str:
    """The page with its tables as they are now. Raises ValueError if it lacks the place of them."""
    return replaced(page, "metrics", "".join(_tables()))


def _tables() -> Iterator[str]:
    for service in MODULES:
        rows = [
            (
                f"`{one.name}`",
                one.kind,
                ", ".join(f"`{label}`" for label in one.labels),
                one.meaning.removesuffix(_LAST),
            )
            for one in describe()
            if one.service == service
        ]
        yield f"\n### {service.capitalize()}\n\n" + table(("name", "type", "labels", "meaning"), rows)


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
