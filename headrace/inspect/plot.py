"""Draws curves of runs with matplotlib, which is imported only to draw."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headrace.inspect.screen import SHOWN
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.evals import sets_of
from headrace.wire.rundir.jsonl import number_of
from headrace.wire.telemetry.metric_table import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, which colour-blind people can distinguish."""
_STYLES = ("-", "--", "-.", ":")
_STYLE: dict[str, object] = {
    "font.family": ["DejaVu Sans"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "svg.fonttype": "none",
    # The same numbers give the same file.
    "svg.hashsalt": "headrace",
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes."""

    metric: str
    is_eval: bool = False
    set: str = ""
    """The evaluation set; empty for one without a name, and for steps."""

    @property
    def title(self) -> str:
        """Its name with its unit, if that is not told by the name or the axis."""
        name, unit = SHOWN[self.metric][0], METRICS[self.metric].unit
        shown = [f"held-out {name}" if self.is_eval else name, "" if unit in (name, "share") else unit, self.set]
        return ", ".join(filter(None, shown))

    @property
    def key(self) -> str:
        """Key in `metrics.jsonl`, or in `evals.jsonl`."""
        return f"{self.set}/{self.metric}" if self.set else self.metric


_STEPS = ("reward_margin", "policy_kl", "entropy", "completion_length_mean", "staleness_mean", "seconds")
_EVALS = tuple(Panel(metric, is_eval=True) for metric in ("accuracy", "reward_mean", "loss"))
PANELS = (Panel("reward_mean"), *_EVALS, Panel("loss"), Panel("accuracy"), *map(Panel, _STEPS))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """Metrics of one run."""

    name: str
    steps: Sequence[Mapping[str, object]]
    """Rows by step."""
    evals: Sequence[Mapping[str, object]]
    """Rows by version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points of one run in one panel. Axis: point."""

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]


def choose_panels(runs: Sequence[RunRows]) -> list[tuple[Panel, list[Curve]]]:
    """Panels that any run has numbers for, with one curve per such run. Pure."""
    sets = dict.fromkeys(name for run in runs for row in run.evals for name in sets_of(dict.fromkeys(row))) or ("",)
    panels = [
        one for panel in PANELS for one in ([replace(panel, set=name) for name in sets] if panel.is_eval else [panel])
    ]
    found = [(panel, [curve for run in runs if (curve := _curve(panel, run)) is not None]) for panel in panels]
    return [(panel, curves) for panel, curves in found if curves]


def _curve(panel: Panel, run: RunRows) -> Curve | None:
    rows, axis = (run.evals, "version") if panel.is_eval else (run.steps, "step")
    pairs = [(row[axis], number) for row in rows if (number := number_of(row.get(panel.key))) is not None]
    if not pairs:
        return None
    x, y = np.array(pairs, dtype=np.float64).T
    return Curve(name=run.name, x=x, y=y)


def draw(panels: Sequence[tuple[Panel, list[Curve]]], names: Sequence[str], title: str, files: Sequence[Path]) -> None:
    """Writes one picture to each file, by its suffix. Raises ConfigError without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install 'headrace[plot]'") from None
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    with rc_context(_STYLE):
        figure = Figure(figsize=(3.6 * columns + 0.4, 2.6 * rows + 0.9), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        figure.suptitle(title, x=0.008, ha="left", fontweight="bold")
        for place in axes.flat[len(panels) :]:
            place.set_visible(False)
        lines = {}
        for place, (panel, curves) in zip(axes.flat, panels, strict=False):
            for curve in curves:
                lines[curve.name] = _line(place, curve, names.index(curve.name))
            _label(place, panel)
        if len(names) > 1:
            shown = [name for name in names if name in lines]
            figure.legend([lines[name] for name in shown], shown, loc="outside lower left", ncols=4)
        for file in files:
            figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else {})


def _line(axes: "Axes", curve: Curve, number: int) -> "Line2D":
    """Draws a curve. Returns what stands for it in a legend."""
    colour, style = _COLOURS[number % len(_COLOURS)], _STYLES[number // len(_COLOURS) % len(_STYLES)]
    marker = "o" if len(curve.x) <= 60 else None
    (line,) = axes.plot(curve.x, curve.y, linewidth=1.2, marker=marker, markersize=3, color=colour, linestyle=style)
    return line


def _label(axes: "Axes", panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axes.set_title(panel.title)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    if METRICS[panel.metric].unit == "share":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
