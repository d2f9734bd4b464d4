"""Draws panels with matplotlib, which only this file imports."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.inspect.plot.curves import Curve, Panel
from headrace.wire.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, which colour-blind people can distinguish."""
_STYLES = ("-", "--", "-.", ":")
_INK, _FAINT = "#333333", "#dddddd"
_STYLE: dict[str, object] = {
    "font.size": 9.5,
    "font.family": ["DejaVu Sans"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#999999",
    "axes.labelcolor": _INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": _INK,
    "axes.grid": True,
    "grid.color": _FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "svg.fonttype": "none",
    # The same numbers give the same file.
    "svg.hashsalt": "headrace",
}


def draw(panels: Sequence[tuple[Panel, list[Curve]]], names: Sequence[str], title: str, files: Sequence[Path]) -> None:
    """Writes one picture to each file, by its suffix. Raises ConfigError without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install 'headrace[plot]'") from None
    columns = min(4, max(1, len(panels) if len(panels) < 4 else (len(panels) + 1) // 2))
    rows = -(-len(panels) // columns)
    with rc_context(_STYLE):
        figure = Figure(figsize=(3.6 * columns + 0.4, 2.6 * rows + 0.9), layout="constrained", facecolor="white")
        axes = figure.subplots(rows, columns, squeeze=False)
        figure.suptitle(title, x=0.008, ha="left", fontsize=12.5, fontweight="bold", color=_INK)
        for place, (panel, curves) in zip(axes.flat, panels, strict=False):
            _panel(place, panel, curves, names)
        for place in axes.flat[len(panels) :]:
            place.set_visible(False)
        if len(names) > 1:
            _legend(figure, names)
        for file in files:
            metadata = {"Date": None} if file.suffix == ".svg" else {}
            figure.savefig(file, dpi=150, metadata=metadata)


def _panel(axes: "Axes", panel: Panel, curves: Sequence[Curve], names: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    for curve in () if panel.is_stacked else curves:
        number = names.index(curve.name)
        colour, style = _COLOURS[number % len(_COLOURS)], _STYLES[number // len(_COLOURS) % len(_STYLES)]
        if curve.smooth is not None:
            axes.plot(curve.x, curve.y, linewidth=0.7, alpha=0.3, color=colour)
            axes.plot(curve.x, curve.smooth, linewidth=1.7, color=colour, linestyle=style)
        else:
            marker = "o" if len(curve.x) <= 60 else None
            axes.plot(curve.x, curve.y, linewidth=1.5, marker=marker, markersize=3.2, color=colour, linestyle=style)
    axes.set_title(panel.title)
    axes.margins(x=0.02)
    axes.tick_params(length=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    if panel.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    if panel.logarithmic and all((curve.y > 0).all() for curve in curves):
        axes.set_yscale("log")
    if panel.is_stacked:
        _stack(axes, curves)
        return
    _limit(axes, panel, curves)
    if len(curves) == 1 and not panel.logarithmic:
        _last_value(axes, panel, curves[0])
    axes.set_xlabel("step", fontsize=8.5, labelpad=1)


def _stack(axes: "Axes", curves: Sequence[Curve]) -> None:
    """Draws stacked bands: for long runs of the running means alone, as there is no room for both."""
    import numpy as np

    heights = [curve.smooth if curve.smooth is not None else curve.y for curve in curves]
    axes.stackplot(
        curves[0].x, *heights, labels=[curve.name for curve in curves], colors=_COLOURS, alpha=0.75, linewidth=0
    )
    whole = np.sum(heights, axis=0)
    # Room for the legend above; one outlier does not set the scale.
    axes.set_ylim(0, 1.35 * float(np.quantile(whole, 0.995) if len(whole) >= 100 else whole.max()) or 1.0)
    axes.set_xlabel("step", fontsize=8.5, labelpad=1)
    axes.legend(loc="upper left", fontsize=6.5, ncols=2, handlelength=1.0, columnspacing=1.0, labelspacing=0.25)


def _limit(axes: "Axes", panel: Panel, curves: Sequence[Curve]) -> None:
    """Cuts the y axis of long curves to all but the outermost hundredth, so that one outlier does not flatten them."""
    import numpy as np

    values = np.concatenate([curve.y for curve in curves])
    if len(values) < 100 or panel.is_eval or panel.logarithmic:
        return
    low, high = np.quantile(values, [0.005, 0.995])
    room = 0.08 * (high - low) or 0.1
    if values.max() > high + 4 * room or values.min() < low - 4 * room:
        axes.set_ylim(low - room, high + room)


def _last_value(axes: "Axes", panel: Panel, curve: Curve) -> None:
    last = float((curve.smooth if curve.smooth is not None else curve.y)[-1])
    text = f"{last:.1%}" if panel.percent else f"{last:.3g}"
    axes.set_title(text, loc="right", fontweight="normal", color=_COLOURS[0])


def _legend(figure: "Figure", names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=_COLOURS[n % len(_COLOURS)], linestyle=_STYLES[n // len(_COLOURS) % len(_STYLES)], lw=2)
        for n in range(len(names))
    ]
    figure.legend(lines, names, loc="outside lower left", ncols=min(4, len(names)), fontsize=9)
