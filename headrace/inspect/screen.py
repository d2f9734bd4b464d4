"""Shows a run to the user: a live table on a terminal, one line per step elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from pydantic import JsonValue
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.inspect.results import StepTail
from headrace.inspect.tables import plain_table
from headrace.inspect.terminal import wrapping
from headrace.inspect.waits import Party, episode_waits, in_time, parties, refusals_in_words
from headrace.supervisor.view import MonitorState, View
from headrace.wire.api.status import OperatorStatus, RunStatus
from headrace.wire.rundir.evals import eval_in_words, evals_of, headline, progress_in_words, sets_of
from headrace.wire.rundir.jsonl import number_of
from headrace.wire.rundir.metrics import GENERATED, MFU, TRAINED
from headrace.wire.telemetry.metric_table import NO_ANSWER_SHARE, STALE_SHARE, component_means

QUIET_S = 10.0
"""A command that works says so at least this often."""
_LONG_QUIET_S = 60.0


class Lines:
    """Prints one line per step, evaluation and notice, and what the run waits for where none of them comes."""

    def __init__(self, run_dir: Path, say: Callable[[str], None], *, started: str = "", steps: bool = True) -> None:
        """`started`: the last line of the start, printed once the orchestrator answers; `steps`: and evaluations."""
        self._print = say
        self._started = started
        self._last, self._filled = time.monotonic(), False
        self._tail = StepTail(run_dir) if steps else None
        self._noticed = 0
        self._waiting = ""

    def show(self, view: View) -> None:
        """Prints what is new since the last view."""
        for notice in view.notices[self._noticed :]:
            self._say(notice)
        self._noticed = len(view.notices)
        if not view.started:
            self._say_once(goes_on(view))
        elif self._started:
            self._say(self._started)
            self._started = ""
        for row in self._tail.read() if self._tail else ():
            self._say(eval_line(row) if "version" in row else step_line(row, view.status))
        self._end_silence(view)

    def close(self) -> None:
        """Does nothing: there is nothing to restore."""

    def _say(self, text: str) -> None:
        self._print(text)
        self._last, self._filled = time.monotonic(), False

    def _end_silence(self, view: View) -> None:
        """One line of what goes on: soon, then seldom in a long step, as often where something is counted."""
        counts = not view.started or bool(view.status and view.status.evaluating)
        if time.monotonic() - self._last >= (QUIET_S if counts or not self._filled else _LONG_QUIET_S):
            self._say(goes_on(view))
            self._filled = True

    def _say_once(self, text: str) -> None:
        if text != self._waiting:
            self._say(text)
        self._waiting = text


def goes_on(view: View) -> str:
    """What the run does at the moment, in one line."""
    status = view.status
    if status is None:
        states = ", ".join(f"{name} {state}" for name, state in view.services.items())
        return ("at work: " if view.started else "starting: ") + states
    trainer = next((one.in_words(status.now) for one in parties(status, view.services) if one.who == "trainer"), "")
    return status.evaluating or f"trainer: {trainer or status.trainer.state}"


class LiveTable:
    """Draws the whole state of the run anew at each view."""

    def __init__(self, run_dir: Path, console: Console) -> None:
        self._run_dir = run_dir
        self._live = Live(console=wrapping(console), auto_refresh=False, transient=False)
        self._live.start()

    def show(self, view: View) -> None:
        """Draws the view."""
        self._live.update(draw(view, evals_of(self._run_dir)), refresh=True)

    def close(self) -> None:
        """Stops drawing; the last table stays on the screen."""
        self._live.stop()


Screen = Lines | LiveTable
"""Shows views of a run until it is closed."""

_GAP = "logprob_gap_max"
SHOWN = {
    "reward_mean": ("reward", ".3f"),
    "loss": ("loss", ".4f"),
    "accuracy": ("accuracy", ".1%"),
    "reward_margin": ("reward margin", ".3f"),
    "kl": ("KL", ".4f"),
    "policy_kl": ("KL to the sampling policy", ".4f"),
    "entropy": ("entropy", ".3f"),
    "completion_length_mean": ("length", ".1f"),
    "staleness_mean": ("staleness", ".2f"),
    "wait_batch_share": ("waited for batch", ".0%"),
    _GAP: ("logprob gap", ".1e"),
    "seconds": ("seconds", ".2f"),
    TRAINED: ("trained tokens/s", ",.0f"),
    GENERATED: ("generated tokens/s", ",.0f"),
    MFU: ("MFU", ".1%"),
}
"""Number of a step -> what a terminal and a plot call it, and its format."""
_LONG = ("kl", "policy_kl", "entropy", "completion_length_mean", GENERATED)
"""Not in the line of a step."""
_MOST_COMPONENTS = 3


def step_line(row: Mapping[str, JsonValue], status: RunStatus | None = None) -> str:
    """Formats the metrics of one step as a line; `status`: of its run, which knows how many steps there are."""
    parts = [f"step {row['step']}" + (f"/{status.max_steps}" if status else "")]
    numbers = {key: number for key, value in row.items() if (number := number_of(value)) is not None}
    for key in (one for one in SHOWN if one not in _LONG):
        parts += _shown(numbers, key)
        parts += _components(numbers) if key == "reward_mean" else []
    if numbers.get("stale_tokens_share", 0.0) > STALE_SHARE:
        parts.append(f"{numbers['stale_tokens_share']:.0%} of the tokens too old to be trained")
    if numbers.get("reward_no_answer_share", 0.0) > NO_ANSWER_SHARE:
        parts.append(f"{numbers['reward_no_answer_share']:.0%} of the rollouts give no answer that a scorer reads")
    if numbers.get("abstained"):
        parts.append(f"{numbers['abstained']:g} rollouts abstained")
    return "  ".join(parts) + ("  (replayed)" if row.get("replayed") else "")


def _components(numbers: Mapping[str, float]) -> list[str]:
    """The first few components of a reward that has several."""
    means = component_means(numbers)
    return [f"{name} {value:.3f}" for name, value in islice(means.items(), _MOST_COMPONENTS)] if len(means) > 1 else []


def _shown(numbers: Mapping[str, float], *keys: str) -> list[str]:
    """Those of these numbers that a step has, by name."""
    found = {key: format(numbers[key], SHOWN[key][1]) for key in keys if key in numbers}
    if _GAP in keys and numbers.get("logprob_gap_tokens") == 0:
        canary = f" (canary {numbers['canary_gap']:.1e})" if "canary_gap" in numbers else ""
        found[_GAP] = f"not compared{canary}"
    return [f"{SHOWN[key][0]} {text}" for key, text in found.items()]


def eval_line(row: Mapping[str, JsonValue]) -> str:
    """Formats one evaluation as a line; for a stage on given examples its loss."""
    accuracy, loss = number_of(row.get("accuracy")), number_of(row.get("loss"))
    if loss is not None:
        right = f", accuracy {accuracy:.1%}" if accuracy is not None else ""
        return f"held-out loss {loss:.4f}{right} at step {row['version']} ({row.get('examples')} examples)"
    version, sets = row["version"], {name: _set_in_words(numbers) for name, numbers in sets_of(row).items()}
    if [*sets] == [""]:
        measures, counts = sets[""]
        return f"held-out {measures} at version {version} ({counts})"
    said = (f"{name} {measures} ({counts})" for name, (measures, counts) in sets.items())
    return f"held-out at version {version}: {'; '.join(said)}"


def _set_in_words(row: Mapping[str, JsonValue]) -> tuple[str, str]:
    """The measures of one evaluation set, and the counts behind them."""
    shown, k = headline([row]), row.get("k")
    parts = [f"{shown.title} {eval_in_words(shown.title, value)}" for value in shown.known] or ["nothing came back"]
    if "avg_at_k" in row and k != 1:
        parts += [f"{name}@{k} {_number(row.get(f'{name}_at_k'), '.1%')}" for name in ("pass", "avg")]
    if (error := number_of(row.get("avg_at_k_error"))) is not None:
        parts[-1] += f" ± {error:.1%}"
    missing = f", {row['missing']} missing" if row.get("missing") else ""
    abstained = f", {row['abstained']} rollouts abstained" if row.get("abstained") else ""
    names = row.get("short")
    some = ", ".join(map(str, names)) if isinstance(names, list) else ""
    short = f", {row['short_prompts']} with fewer than {k} scores: {some}" if some else ""
    return ", ".join(parts), f"{row.get('prompts', 0)} prompts{missing}{abstained}{short}"


def time_left(status: RunStatus) -> str:
    """`, about 4 min left`; empty if that is not known, or the run has ended."""
    if (step_s := status.step_seconds) is None or status.state != "running" or status.step >= status.max_steps:
        return ""
    return f", about {in_time(step_s * (status.max_steps - status.step))} left"


def draw(view: View, evals: Sequence[Mapping[str, JsonValue]]) -> RenderableType:
    """Draws the run as a table: numbers first, then what every service does or waits for, then notices."""
    status = view.status
    metrics = status.trainer.metrics if status else {}
    now = status.now if status else time.time()
    head = (
        f"step {status.step}/{status.max_steps}{time_left(status)}" if status else "step 0/?",
        "  ".join([f"reward {_number(metrics.get('reward_mean'), '.3f')}", *_components(metrics)]),
        f"held-out {progress_in_words(evals) or '-'}",
        f"staleness {_number(metrics.get('staleness_mean'), '.2f')}",
    )
    shares = [one.waiting_share for one in status.replicas] if status else []
    dials = Table.grid(padding=(0, 2))
    dials.add_row(
        f"trainer waits for batches {_number(status.trainer.waiting_share if status else None, '.0%')}",
        f"replicas wait for prompts {_number(sum(shares) / len(shares) if shares else None, '.0%')}",
    )
    lines = parties(status, view.services)
    has_ended = all(line.process == MonitorState.ENDED for line in lines)
    said = [*(_in_force(status) if status else ()), *view.notices[-3:]]
    texts = [Text("  ".join(speed))] if (speed := _shown(metrics, TRAINED, GENERATED, MFU)) else []
    texts += [Text(status.bottleneck.text, style="bold")] if status and status.bottleneck.text else []
    return Group(
        Text("  ".join(head)),
        dials,
        *texts,
        *([] if has_ended else [_table(lines, now)]),
        *(Text(line, style="dim") for line in (episode_waits(status, now) if status and not has_ended else ())),
        *(Text(line, style="yellow") for line in said),
    )


def _in_force(status: RunStatus) -> Iterator[str]:
    """What is in force beside the steps: requests of operators, refused replicas, notes of environments."""
    yield from _operator(status.operator)
    yield from refusals_in_words(status)
    yield from (f"{one.id}: {note}" for one in status.environments for note in one.notes)


def _table(lines: list[Party], now: float) -> Table:
    has_process = any(line.process for line in lines)
    titles = ("service", *(["process"] if has_process else []), "state", "version", "doing")
    rows = (
        (line.who, *([line.process] if has_process else []), line.state, line.version, line.in_words(now))
        for line in lines
    )
    return plain_table(titles, rows, folds=["doing"])


def _operator(operator: OperatorStatus) -> Iterator[str]:
    """Operator requests that are still in effect."""
    if operator.paused:
        yield "paused by an operator"
    if operator.stopping:
        yield "stopping"
    if operator.checkpoint_asked:
        yield "a checkpoint is requested"
    if operator.draining:
        yield f"draining: {', '.join(operator.draining)}"


def _number(value: JsonValue, form: str) -> str:
    number = number_of(value)
    return "-" if number is None else format(number, form)
