"""Every expression of the dashboards and rules, as a Prometheus takes it.

`all_expressions()` has them whole. A comparison that holds back what is healthy returns nothing on a healthy run:
`measured()` has its sides in its place, which return data whenever what they measure exists.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))

OPTIONAL = {
    r"DCGM_": "only machines with NVIDIA's exporter have them",
    r"headrace_trainer_(tokens_per_second_per_gpu|mfu_ratio)": "only a trainer on GPUs that are known has them",
    r"sglang:": "only a replica with the SGLang engine has them",
    r"headrace_reward_(judge|canar|endpoint|forward)": "only a config with judges or reward models has them",
    r"headrace_reward_sandbox_tests": "only a config with code rewards has them",
    r"headrace_environment_": "only a config with an environment has them",
    r"checkpoint_last_success_timestamp_seconds\S* > 0": "before the first checkpoint there is none",
}
"""Pattern -> why an expression that has it may return nothing on a run that is well."""

_FILLED = {"$__rate_interval": "30s", "$__interval": "10s", "$__range": "5m"}
_KEYWORDS = {
    *("and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset"),
    *("sum", "min", "max", "avg", "count", "time", "vector", "inf", "nan", "histogram_quantile", "clamp_min"),
    *("rate", "increase", "changes", "avg_over_time", "max_over_time", "last_over_time"),
}


def all_expressions() -> list[tuple[str, str]]:
    """(where it stands, expression) of each panel, recording rule and alert; variables are filled in."""
    return [*_panels(), *((f"{name}: {kind}", expr) for name, kind, expr in _rules())]


def measured(*, optional: bool = False) -> list[tuple[str, str]]:
    """(where, expression) that must return data on a run that is well; `optional`: also those of `OPTIONAL`."""
    alerts = {f"{name}: {kind}" for name, kind, _ in _rules() if kind == "alert"}
    whole = [(where, [expr] if where not in alerts else sides(expr)) for where, expr in all_expressions()]
    found = [(where, side) for where, parts in whole for side in parts]
    return [(where, expr) for where, expr in found if optional or not why_optional(expr)]


def why_optional(expr: str) -> str:
    """Why it may return nothing; empty if it may not."""
    return next((why for pattern, why in OPTIONAL.items() if re.search(pattern, expr)), "")


def metric_names(expr: str) -> set[str]:
    """Names of the series that an expression reads."""
    bare = re.sub(r'"[^"]*"', "", expr)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", bare)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    return {word for word in re.findall(r"(?<![\w.])[a-zA-Z_][\w:]*", bare) if word not in _KEYWORDS}


def sides(expr: str) -> list[str]:
    """What a condition compares: split at every comparison and set operator, constants left out."""
    inner = expr.strip()
    if inner.startswith("(") and _closing(inner) == len(inner) - 1:
        return sides(inner[1:-1])
    for operators in (r"\b(?:and|or|unless)\b", r"(?:[=!]=|[<>]=?)(?:\s*bool)?"):
        parts = _split(inner, operators)
        if len(parts) > 1:
            return [side for part in parts for side in sides(part)]
    return [inner] if metric_names(inner) else []


def _split(expr: str, operators: str) -> list[str]:
    """At the operators outside of all brackets; what follows `on (...)` and `group_left` is not part of a side."""
    parts, start, depth, place = [], 0, 0, 0
    operator = re.compile(
        rf"\s*{operators}(?:\s*(?:on|ignoring)\s*\([^)]*\))?(?:\s*group_(?:left|right)(?:\s*\([^)]*\))?)?\s*"
    )
    while place < len(expr):
        if expr[place] == '"':
            place = expr.index('"', place + 1)
        elif expr[place] in "([{":
            depth += 1
        elif expr[place] in ")]}":
            depth -= 1
        elif depth == 0 and (found := operator.match(expr, place)):
            parts.append(expr[start:place])
            start = place = found.end()
            continue
        place += 1
    return [*parts, expr[start:]]


def _closing(expr: str) -> int:
    depth = 0
    for place, sign in enumerate(expr):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return place
    raise ValueError(f"unbalanced: {expr}")


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
