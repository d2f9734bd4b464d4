"""Dashboards and rules name only metrics and labels that exist."""

import re

import yaml
from prometheus_client import REGISTRY

from deploy.grafana.generate import FOLDER, rendered
from headrace.reference.metric_docs import describe
from tests.integration.metrics.expressions import DEPLOY, RULES, all_expressions, metric_names
from tests.integration.metrics.replayed import engine_names, gpu_names

OF_PROMETHEUS = {"up", "ALERTS", "scrape_duration_seconds"}


def test_every_name_in_an_expression_exists() -> None:
    client = {sample.name for family in REGISTRY.collect() for sample in family.samples}
    known = (
        OF_PROMETHEUS
        | client
        | engine_names()
        | gpu_names()
        | _recorded()
        | {s for one in describe() for s in one.series}
    )
    unknown = {where: metric_names(expr) - known for where, expr in all_expressions()}
    assert not {where: names for where, names in unknown.items() if names}


def test_labels_in_matchers_exist() -> None:
    labels = {series: {*one.labels, "run", "replica", "service", "le"} for one in describe() for series in one.series}
    for where, expr in all_expressions():
        for name, matchers in re.findall(r"(?<![\w:])(headrace_\w+)\{([^}]*)\}", expr):
            assert set(re.findall(r"(\w+)\s*[=!]", re.sub(r'"[^"]*"', "", matchers))) <= labels[name], where


def test_grafana_provisioning_matches_the_dashboards() -> None:
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    provider = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/headrace.yml").read_text())["providers"][0]
    assert source["uid"] == "prometheus" and provider["options"]["path"] == "/etc/grafana/dashboards"
    assert {path.name for path in FOLDER.glob("*")} == {*rendered()}


def _recorded() -> set[str]:
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
