"""docs/metrics.md is what the services declare, and what they declare follows Prometheus' rules."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from headrace.reference.metric_docs import MODULES, Described, describe
from headrace.services.trainer.metrics import OF_STEP

ROOT = Path(__file__).parents[4]
BOUNDED = {
    *("version", "python", "stream", "reason", "choice", "fate", "kind", "outcome", "phase", "state", "finish_reason"),
    *(
        "route",
        "scorer",
        "judge",
        "direction",
        "endpoint",
        "ending",
        "tracker",
        "exporter",
        "operation",
        "tool",
        "part",
        "tokens",
    ),
}
"""Labels whose values are few: enums, or names out of the config."""
UNITS = (
    *(
        "_seconds",
        "_bytes",
        "_ratio",
        "_share",
        "_fraction",
        "_nats",
        "_versions",
        "_tokens",
        "_groups",
        "_entries",
        "_steps",
        "_rollouts",
    ),
    *("_tokens_per_second", "_tokens_per_second_per_gpu"),
)
NO_UNIT = re.compile(
    r"_(info|operation_active|abandoned_join_threads|state|run_phase|paused|incarnation|policy_version|replicas|max_steps|groups_\w+|rollouts_in_flight|sampled_turns_in_flight|episodes_capacity|"
    r"circuit_open|score_mean)$"
)
OF_STEP_WITHOUT = {f"headrace_trainer_{key}" for key in OF_STEP}
"""Gauges of a step that declare no unit: with one, it would follow the key."""


def test_names_and_labels_follow_the_rules() -> None:
    found = {metric.name: list(broken_rules(metric)) for metric in describe()}
    assert found
    assert {name: rules for name, rules in found.items() if rules} == {}


def broken_rules(metric: Described) -> Iterator[str]:
    if not re.fullmatch(r"headrace_[a-z][a-z0-9_]*", metric.name):
        yield "its name is not of lower-case letters, digits and underscores"
    if metric.service != "every service" and not metric.name.startswith(f"headrace_{metric.service}_"):
        yield f"its name lacks headrace_{metric.service}_"
    if (metric.kind == "counter") != metric.name.endswith("_total"):
        yield "counters alone end in _total"
    if unbounded := set(metric.labels) - BOUNDED:
        yield f"labels that may have any number of values: {sorted(unbounded)}"
    if not metric.meaning.endswith("."):
        yield "its meaning is no sentence"
    without = metric.kind == "gauge" and (NO_UNIT.search(metric.name) or metric.name in OF_STEP_WITHOUT)
    unit = metric.name.endswith(UNITS) or without
    if metric.kind in ("gauge", "histogram") and not unit:
        yield "its name ends in no unit"


def test_metrics_are_declared_in_files_named_metrics_and_nowhere_else() -> None:
    for folder in ("wire", "services", "headrace"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if "prometheus_client" not in text:
                continue
            names = {
                alias.name
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.ImportFrom) and node.module == "prometheus_client"
                for alias in node.names
            }
            assert path.name == "metrics.py" or not names & {"Counter", "Gauge", "Histogram", "Summary", "Info"}, path


def test_every_metrics_file_is_in_the_docs() -> None:
    found = [path for part in ("wire", "services") for path in (ROOT / part).rglob("metrics.py")]
    files = {"headrace." + path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in found}
    files.remove("headrace.wire.rundir.metrics")  # Reads and writes `metrics.jsonl`, and declares no metric.
    assert files == {module for modules in MODULES.values() for module in modules}
