"""Shows a run to the user: a live table on a terminal, one line per step elsewhere."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headrace.inspect.results import StepTail, evals_of
from headrace.inspect.waits import Party, evaluation_in_words, parties, publication_in_words, refusals_in_words
from headrace.services.trainer.throughput.speed import GENERATED, MFU, TRAINED
from headrace.supervisor.supervisor import View

_WIDEST = 1000


class Screen(Protocol):
    """Shows views of a run until it is closed."""

    def show(self, view: View) -> None:
        """Shows one view of the run."""
        ...

    def close(self) -> None:
        """Restores the terminal."""
        ...


class Lines:
    """Prints one line per step, evaluation and notice."""

    def __init__(self, run_dir: Path, say: Callable[[str], None], *, started: str = "") -> None:
        """`started`: the last line of the start, printed once the orchestrator answers."""
        self._say = say
        self._started = started
        self._tail = StepTail(run_dir)
        self._noticed = 0
        self._waiting = ""

    def show(self, view: View) -> None:
        """Prints what is new since the last view."""
        for notice in view.notices[self._noticed :]:
            self._say(notice)
        self._noticed = len(view.notices)
        if not view.status:
            self._say_once("starting: " + ", ".join(f"{name} {state}" for name, state in view.services.items()))
        elif self._started:
            self._say(self._started)
            self._started = ""
        for row in self._tail.read():
            self._say(eval_line(row) if "version" in row else step_line(row))

    def close(self) -> None:
        """Does nothing: there is nothing to restore."""

    def _say_once(self, text: str) -> None:
        if text != self._waiting:
            self._say(text)
        self._waiting = text


class LiveTable:
    """Draws the whole state of the run anew at each view."""

    def __init__(self, run_dir: Path, console: Console) -> None:
        self._run_dir = run_dir
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def show(self, view: View) -> None:
        """Draws the view."""
        self._live.update(draw(view, evals_of(self._run_dir)), refresh=True)

    def close(self) -> None:
        """Stops drawing; the last table stays on the screen."""
        self._live.stop()


def step_line(row: dict[str, Any]) -> str:
    """Formats the metrics of one step as a line."""
    parts = [f"step {row['step']}"]
    for name, key, form in (
        ("reward", "reward_mean", ".3f"),
        ("loss", "loss", ".4f"),
        ("accuracy", "accuracy", ".1%"),
        ("reward margin", "reward_margin", ".3f"),
        ("staleness", "staleness_mean", ".2f"),
        ("waited for batch", "wait_batch_share", ".0%"),
        ("logprob gap", "logprob_gap_max", ".1e"),
        ("seconds", "seconds", ".2f"),
        ("trained tokens/s", TRAINED, ",.0f"),
        ("MFU", MFU, ".1%"),
    ):
        if row.get(key) is not None:
            parts.append(f"{name} {row[key]:{form}}")
    if (row.get("stale_tokens_share") or 0.0) > 0.05:
        parts.append(f"{row['stale_tokens_share']:.0%} of the tokens too old to be trained")
    if row.get("abstained"):
        parts.append(f"{row['abstained']:g} rollouts abstained")
    return "  ".join(parts) + ("  (replayed)" if row.get("replayed") else "")


def eval_line(row: dict[str, Any]) -> str:
    """Formats one evaluation as a line; for a stage on given examples its loss."""
    if "loss" in row:
        accuracy = f", accuracy {row['accuracy']:.1%}" if row.get("accuracy") is not None else ""
        return f"held-out loss {row['loss']:.4f}{accuracy} at step {row['version']} ({row['examples']} examples)"
    missing = f", {row['missing']} missing" if row.get("missing") else ""
    abstained = f", {row['abstained']} rollouts abstained" if row.get("abstained") else ""
    prompts = f"{row.get('prompts', 0)} prompts{missing}{abstained}"
    if row.get("accuracy") is None:
        return f"no held-out prompt came back at version {row['version']} ({prompts})"
    return f"held-out accuracy {row['accuracy']:.1%} at version {row['version']} ({prompts})"


def draw(view: View, evals: list[dict[str, Any]]) -> RenderableType:
    """Draws the run as a table: numbers first, then what every service does or waits for, then notices."""
    status = view.status
    trainer = _dict(status.get("trainer"))
    metrics = _dict(trainer.get("metrics"))
    head = Table.grid(padding=(0, 2))
    head.add_row(
        f"step {status.get('step', 0)}/{status.get('max_steps', '?')}",
        f"reward {_number(metrics.get('reward_mean'), '.3f')}",
        "held-out "
        + (" -> ".join(_number(row.get("accuracy"), ".1%") for row in (evals[0], evals[-1])) if evals else "-"),
        f"staleness {_number(metrics.get('staleness_mean'), '.2f')}",
    )
    shares = [float(_dict(one).get("waiting_share") or 0.0) for one in _list(status.get("replicas"))]
    dials = Table.grid(padding=(0, 2))
    dials.add_row(
        f"trainer waits for batches {_number(trainer.get('waiting_share'), '.0%')}",
        f"replicas wait for prompts {_number(sum(shares) / len(shares) if shares else None, '.0%')}",
    )
    now = float(status.get("now") or time.time())
    speed = _speed(metrics)
    said = [publication_in_words(_dict(status.get("publication")))] if status.get("publication") else []
    said += filter(None, [evaluation_in_words(status, now), *_operator(_dict(status.get("operator")))])
    said += refusals_in_words(status)
    said += view.notices[-3:]
    bottleneck = str(_dict(status.get("bottleneck")).get("text") or "")
    texts = [Text(bottleneck, style="bold")] if bottleneck else []
    return Group(
        head,
        dials,
        *speed,
        *texts,
        _table(parties(status, view.services), now),
        *(Text(line, style="yellow") for line in said),
    )


def _speed(metrics: dict[str, Any]) -> list[Text]:
    """Throughput of the last step in one line; empty before the first."""
    parts = [
        f"{name} {metrics[key]:{form}}{unit}"
        for name, key, form, unit in (
            ("trained", TRAINED, ",.0f", " tokens/s"),
            ("generated", GENERATED, ",.0f", " tokens/s"),
            ("MFU", MFU, ".1%", ""),
        )
        if isinstance(metrics.get(key), int | float)
    ]
    return [Text("  ".join(parts))] if parts else []


def show_table(console: Console, table: RenderableType) -> None:
    """Prints a table as wide as the terminal; elsewhere as wide as needed, so that nothing is cut off."""
    if console.is_terminal:
        console.print(table)
        return
    wide = console.options.update(max_width=_WIDEST)
    width = max(console.width, Measurement.get(console, wide, table).maximum)
    Console(file=console.file, width=width, highlight=False).print(table)


def _table(lines: list[Party], now: float) -> Table:
    has_process = any(line.process for line in lines)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("service", *(["process"] if has_process else []), "state", "version", "doing"):
        table.add_column(title, no_wrap=title != "doing")
    for line in lines:
        process = [line.process] if has_process else []
        # As text: brackets in it are not markup.
        cells = (line.who, *process, line.state, line.version, line.in_words(now))
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _operator(operator: dict[str, Any]) -> list[str]:
    """Operator requests that are still in effect."""
    said = [word for key, word in (("paused", "paused by an operator"), ("stopping", "stopping")) if operator.get(key)]
    said += ["a checkpoint was asked for"] if operator.get("checkpoint_asked") else []
    draining = [str(one) for one in _list(operator.get("draining"))]
    return said + ([f"draining: {', '.join(draining)}"] if draining else [])


def _number(value: Any, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) else "-"


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
