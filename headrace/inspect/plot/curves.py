"""Selects the panels and curves to draw from the rows of runs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headrace.inspect.plot.phases import phase_seconds

_POINTS = 2000
"""Most points per curve: more than pixels add nothing."""
_SMOOTH_FROM = 30
"""Shorter curves are drawn without a running mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One set of axes."""

    title: str
    key: str
    """Key in `metrics.jsonl`, or in `evals.jsonl`."""
    percent: bool = False
    logarithmic: bool = False
    is_eval: bool = False
    is_stacked: bool = False
    """Its curves are parts of a whole, drawn on top of each other."""


PANELS = (
    Panel(title="reward", key="reward_mean"),
    Panel(title="held-out accuracy", key="accuracy", percent=True, is_eval=True),
    Panel(title="loss", key="loss"),
    Panel(title="held-out loss", key="loss", is_eval=True),
    Panel(title="accuracy in training", key="accuracy", percent=True),
    Panel(title="reward margin", key="reward_margin"),
    Panel(title="KL to the sampling policy", key="policy_kl"),
    Panel(title="entropy, nats a token", key="entropy"),
    Panel(title="tokens a completion", key="completion_length_mean"),
    Panel(title="staleness, versions", key="staleness_mean"),
    Panel(title="seconds a step", key="seconds"),
    Panel(title="clipped tokens", key="clip_fraction", percent=True),
    Panel(title="gradient norm", key="grad_norm", logarithmic=True),
    Panel(title="trainer waits for batches", key="wait_batch_share", percent=True),
    Panel(title="trained tokens a second", key="trained_tokens_per_second"),
    Panel(title="MFU", key="mfu", percent=True),
)
_MOST = 8
"""At most this many panels with numbers are drawn, the first ones."""


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
    """Name of the run, or of the phase."""
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    smooth: NDArray[np.float64] | None
    """A running mean over the same x; None for few points."""


def choose_panels(runs: Sequence[RunRows], most: int = _MOST) -> list[tuple[Panel, list[Curve]]]:
    """Panels that any run has numbers for, with one curve per such run."""
    found: list[tuple[Panel, list[Curve]]] = []
    for panel in PANELS:
        parts = _phases(runs[0]) if panel.key == "seconds" and len(runs) == 1 else []
        if parts:
            panel = replace(panel, title="seconds a step by phase", is_stacked=True)
        curves = parts or [curve for run in runs if (curve := _curve(panel, run)) is not None]
        if curves and len(found) < most:
            found.append((panel, curves))
    return found


def running_mean(y: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Centred running mean; at the ends over the part of the window that exists."""
    sums = np.concatenate([[0.0], np.cumsum(y)])
    index = np.arange(len(y))
    low, high = np.maximum(index - window // 2, 0), np.minimum(index + window // 2 + 1, len(y))
    mean: NDArray[np.float64] = (sums[high] - sums[low]) / (high - low)
    return mean


def _curve(panel: Panel, run: RunRows) -> Curve | None:
    rows, axis = (run.evals, "version") if panel.is_eval else (run.steps, "step")
    pairs = [(row[axis], row[panel.key]) for row in rows if _is_number(row.get(panel.key))]
    if not pairs:
        return None
    x, y = np.array(pairs, dtype=np.float64).T
    return _thinned(run.name, x, y, is_smooth=not panel.is_eval)


def _phases(run: RunRows) -> list[Curve]:
    x, seconds = phase_seconds(run.steps)
    return [_thinned(name, x, y, is_smooth=True) for name, y in seconds.items()]


def _thinned(name: str, x: NDArray[np.float64], y: NDArray[np.float64], *, is_smooth: bool) -> Curve:
    smooth = running_mean(y, max(5, len(y) // 20)) if is_smooth and len(y) >= _SMOOTH_FROM else None
    if len(x) > _POINTS:
        keep = np.linspace(0, len(x) - 1, _POINTS).astype(np.int64)
        x, y, smooth = x[keep], y[keep], None if smooth is None else smooth[keep]
    return Curve(name=name, x=x, y=y, smooth=smooth)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
