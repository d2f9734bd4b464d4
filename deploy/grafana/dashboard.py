"""What a Grafana dashboard is made of: panels on a grid of 24 columns, variables, and the JSON of both."""

from dataclasses import dataclass
from typing import Any

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24


@dataclass(frozen=True, slots=True)
class Query:
    """One expression and the name of its series."""

    expr: str
    legend: str


class Panel:
    """One panel; `description` is what a reader needs to judge it."""

    def __init__(
        self,
        title: str,
        description: str,
        *queries: Query,
        unit: str = "short",
        kind: str = "timeseries",
        text: str = "auto",
        width: int = 8,
        stacked: bool = False,
        low: float | None = None,
        high: float | None = None,
        bad_above: float | None = None,
    ) -> None:
        """`kind`: timeseries or stat; `text`: mode of a stat, auto or name; red `bad_above`."""
        self.title, self.description, self.queries = title, description, queries
        self.unit, self.kind, self.text, self.width = unit, kind, text, width
        self.stacked, self.low, self.high, self.bad_above = stacked, low, high, bad_above

    def as_json(self, number: int, x: int, y: int, height: int) -> dict[str, Any]:
        """Grafana's form, without what Grafana assumes; a target has its panel's data source."""
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": _DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": height},
            "targets": [_target(index, query, self.kind) for index, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": self._defaults()},
            "options": _OPTIONS[self.kind] | ({"textMode": self.text} if self.kind == "stat" else {}),
        }

    def _defaults(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
        if self.bad_above is not None:
            steps.append({"color": "red", "value": self.bad_above})
        found: dict[str, Any] = {"unit": self.unit, "thresholds": {"mode": "absolute", "steps": steps}}
        found |= {key: value for key, value in (("min", self.low), ("max", self.high)) if value is not None}
        if self.kind == "timeseries":
            custom: dict[str, Any] = {"fillOpacity": 30 if self.stacked else 5}
            custom |= {"stacking": {"mode": "normal", "group": "A"}} if self.stacked else {}
            custom |= {"thresholdsStyle": {"mode": "line"}} if self.bad_above is not None else {}
            found["custom"] = custom
        return found


class Row:
    """A titled row of panels, which wrap when the grid is full."""

    def __init__(self, title: str, *panels: Panel, height: int = 8) -> None:
        self.title, self.panels, self.height = title, panels, height


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A choice at the head of the dashboard."""

    name: str
    label: str
    query: str

    def as_json(self) -> dict[str, Any]:
        """Grafana's form; `All` is `.*`, so that it takes in what comes later."""
        return {
            "name": self.name,
            "label": self.label,
            "type": "query",
            "datasource": _DATASOURCE,
            "query": {"query": self.query, "refId": self.name},
            "definition": self.query,
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One page."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        """Grafana's form."""
        source = {
            "name": "datasource",
            "label": "Prometheus",
            "type": "datasource",
            "query": "prometheus",
            "current": {"text": "Prometheus", "value": "prometheus"},
        }
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["headrace"],
            "schemaVersion": 39,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "templating": {"list": [source, *(variable.as_json() for variable in self.variables)]},
            "links": [{"type": "dashboards", "title": "Headrace", "tags": ["headrace"], "keepTime": True}],
            "panels": _placed(self.rows),
        }


def _placed(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        place = {"x": 0, "y": y, "w": _WIDTH, "h": 1}
        found.append({"id": len(found) + 1, "type": "row", "title": row.title, "collapsed": False, "gridPos": place})
        x, y = 0, y + 1
        for panel in row.panels:
            if x + panel.width > _WIDTH:
                x, y = 0, y + row.height
            found.append(panel.as_json(len(found) + 1, x, y, row.height))
            x += panel.width
        y += row.height
    return found


def _target(index: int, query: Query, kind: str) -> dict[str, Any]:
    found = {"refId": chr(ord("A") + index), "expr": query.expr, "legendFormat": query.legend}
    return found | ({"instant": True, "range": False} if kind == "stat" else {})


_LEGEND = {"displayMode": "table", "calcs": ["lastNotNull", "max"]}
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"]},
        "colorMode": "value",
        "graphMode": "none",
    },
}
