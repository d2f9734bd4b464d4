"""Scrape config, recording rules and alerts, by Prometheus' own tool."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.integration.metrics.alert_cases import CASES, Case, Series
from tests.integration.metrics.expressions import DEPLOY, RULES
from tests.integration.metrics.prometheus import promtool

ROOT = DEPLOY.parent
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for path in RULES
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


def test_promtool_accepts_config_and_rules() -> None:
    promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))
    promtool("check", "rules", "--lint-fatal", *map(str, RULES))


def test_alerts_fire_only_in_the_situations_they_are_for(tmp_path: Path) -> None:
    tests = [
        {
            "name": f"{alert}, {situation}",
            "interval": "1m",
            "input_series": [{"series": _with_run(name), "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count by (alertname) (ALERTS{{alertname="{alert}", alertstate="firing"}})',
                    "eval_time": f"{case.minutes}m",
                    "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if fires else [],
                }
            ],
        }
        for alert, case in CASES.items()
        for situation, series, fires in _situations(case)
    ]
    file = tmp_path / "alerts.yml"
    file.write_text(yaml.safe_dump({"rule_files": list(map(str, RULES)), "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(file))


def test_every_alert_has_a_section_of_the_runbook() -> None:
    text = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### (.*)$", text, flags=re.MULTILINE)) == set(ALERTS)
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"


def _situations(case: Case) -> list[tuple[str, Series, bool]]:
    fires = [("bad", case.fires, True), *((name, series, True) for name, series in case.also.items())]
    return fires + [(name, series, False) for name, series in case.calm.items()]


def _with_run(series: str) -> str:
    name, _, labels = series.replace("'", '"').partition("{")
    return f'{name}{{run="a", {labels}' if labels else f'{name}{{run="a"}}'
