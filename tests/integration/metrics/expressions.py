"""Every expression of the dashboards and rules, as a Prometheus takes it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))

_FILLED = {"$__rate_interval": "30s", "$__interval": "10s", "$__range": "5m"}
_KEYWORDS = {
    *("and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset"),
    *("sum", "min", "max", "avg", "count", "time", "vector", "inf", "nan", "histogram_quantile", "clamp_min"),
    *("rate", "increase", "changes", "avg_over_time", "max_over_time", "last_over_time"),
}


def all_expressions() -> list[tuple[str, str]]:
    """(where it stands, expression) of each panel, recording rule and alert; variables are filled in."""
    return [*_panels(), *((f"{name}: {kind}", expr) for name, kind, expr in _rules())]


def measured() -> list[tuple[str, str]]:
    """(where, expression) that must return data on a run that is well: all but the alerts."""
    return [*_panels(), *((f"{name}: {kind}", expr) for name, kind, expr in _rules() if kind == "record")]


def metric_names(expr: str) -> set[str]:
    """Names of the series that an expression reads."""
    bare = re.sub(r'"[^"]*"', "", expr)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", bare)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    return {word for word in re.findall(r"(?<![\w.])[a-zA-Z_][\w:]*", bare) if word not in _KEYWORDS}


def _panels() -> Iterator[tuple[str, str]]:
    for path in DASHBOARDS:
        board: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        variables = [variable["name"] for variable in board["templating"]["list"]]
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                yield f"{path.stem}: {panel['title']} {target['refId']}", fill_in(target["expr"], variables)


def fill_in(expr: str, variables: list[str]) -> str:
    """As Grafana would with `All` chosen everywhere. Raises ValueError for a variable that is not defined."""
    for name, value in (_FILLED | {f"${name}": ".*" for name in variables}).items():
        expr = re.sub(rf"{re.escape(name)}\b", value, expr)
    if "$" in expr:
        raise ValueError(f"a variable is not defined: {expr}")
    return expr


def _rules() -> Iterator[tuple[str, str, str]]:
    for path in RULES:
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            for rule in group["rules"]:
                kind = "alert" if "alert" in rule else "record"
                yield rule[kind], kind, rule["expr"]
