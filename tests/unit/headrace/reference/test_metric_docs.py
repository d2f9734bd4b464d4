"""docs/metrics.md is what the services declare, and what they declare follows Prometheus' rules."""

import ast
import re
from pathlib import Path

import pytest

from headrace.reference.metric_docs import MODULES, Described, describe

ROOT = Path(__file__).parents[4]
BOUNDED = {
    *("version", "python", "stream", "reason", "choice", "fate", "kind", "outcome", "phase", "state", "finish_reason"),
    *("route", "scorer", "judge", "direction", "endpoint", "ending", "tracker", "exporter", "operation"),
}
"""Labels whose values are few: enums, or names out of the config."""
UNITS = (
    *("_seconds", "_bytes", "_ratio", "_nats", "_versions", "_tokens", "_groups", "_entries", "_steps", "_rollouts"),
    *("_tokens_per_second", "_tokens_per_second_per_gpu"),
)
NO_UNIT = re.compile(
    r"_(info|operation_active|abandoned_join_threads|state|run_phase|paused|incarnation|policy_version|replicas|max_steps|groups_\w+|rollouts_in_flight|"
    r"circuit_open|score_mean|reward_mean|reward_std|loss|value_loss|\w*grad_norm|learning_rate)$"
)


@pytest.mark.parametrize("metric", describe(), ids=lambda metric: metric.name)
def test_names_and_labels_follow_the_rules(metric: Described) -> None:
    assert re.fullmatch(r"headrace_[a-z][a-z0-9_]*", metric.name)
    assert metric.service == "every service" or metric.name.startswith(f"headrace_{metric.service}_")
    assert (metric.kind == "counter") == metric.name.endswith("_total")
    assert set(metric.labels) <= BOUNDED
    assert metric.meaning.endswith(".")
    if metric.kind == "gauge":
        assert metric.name.endswith(UNITS) or NO_UNIT.search(metric.name)
    if metric.kind == "histogram":
        assert metric.name.endswith(UNITS)


def test_metrics_are_declared_in_files_named_metrics_and_nowhere_else() -> None:
    for folder in ("wire", "services", "headrace"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            names = {
                alias.name
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.ImportFrom) and node.module == "prometheus_client"
                for alias in node.names
            }
            assert path.name == "metrics.py" or not names & {"Counter", "Gauge", "Histogram", "Summary", "Info"}, path


def test_every_metrics_file_is_in_the_docs() -> None:
    found = [path for part in ("wire", "services") for path in (ROOT / part).rglob("metrics.py")]
    files = {"headrace." + path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in found}
    assert files == {module for modules in MODULES.values() for module in modules}
