"""Summary of one run directory, without reading long files whole."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.supervisor.lock import supervisor_pid
from headrace.wire.config.kept import kept_tables
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rundir.evals import evals_of, headline
from headrace.wire.rundir.events import began_at, state_of
from headrace.wire.rundir.jsonl import number_of
from headrace.wire.rundir.metrics import last_steps

_LAST = 10
"""Metrics of single steps are noisy: the mean of this many is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One row of `headrace runs`. Numbers that the run has not written are None."""

    name: str
    run_dir: str
    id: str
    stage: str
    state: str
    """`running`, `finished`, `stopped` or `prepared`."""
    steps: int
    max_steps: int | None
    began: float | None
    """Unix seconds of its first event; before that, of its config's last write."""
    seconds: float | None
    """From `began` to the last step."""
    eval_measure: str
    """What the evaluations below are: `accuracy`, or `reward` where scores are not just 0 and 1; of the first set."""
    eval_before: float | None
    eval_after: float | None
    eval_best: float | None
    last: dict[str, float]
    """Means of the last ten steps, by metric."""


def run_state(run_dir: Path) -> str:
    """`running` while a supervisor lives, else what the files tell (`state_of`). Raises OSError."""
    return "running" if supervisor_pid(run_dir) else state_of(run_dir)


def facts_of(run_dir: Path) -> RunFacts:
    """Reads one run directory. Raises ConfigError if the folder is not one, DataError for a file that is none."""
    tables = kept_tables(run_dir)
    run = tables.get("run") or {}
    rows = last_steps(run_dir, _LAST)
    steps = int(number_of(rows[-1]["step"]) or 0) if rows else 0
    held_out = headline(evals_of(run_dir))
    began = began_at(run_dir)
    ended = number_of(rows[-1].get("t")) if rows else None
    return RunFacts(
        name=run_dir.resolve().name,
        run_dir=str(run_dir),
        id=str(run.get("id", "")),
        stage=str(run.get("stage", "rl")),
        state=run_state(run_dir),
        steps=steps,
        max_steps=run.get("max_steps") if run.get("stage", "rl") == "rl" else None,
        began=round(began, 3),
        seconds=round(ended - began, 3) if ended is not None and ended > began else None,
        eval_measure=held_out.title,
        eval_before=held_out.known[0] if held_out.known else None,
        eval_after=held_out.known[-1] if held_out.known else None,
        eval_best=max(held_out.known, default=None),
        last=_means(rows),
    )


def runs_in(folder: Path, unreadable: Callable[[str], None]) -> Iterator[RunFacts]:
    """All run directories in a folder, oldest first; others are skipped. Raises ConfigError if there is no folder.

    `unreadable` receives why a run directory cannot be read, in one line; it is left out.
    """
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}; `headrace runs list FOLDER` looks elsewhere")
    files = sorted(folder.glob("*/config/run.toml"), key=_written)
    for file in files:
        try:
            yield facts_of(file.parents[1])
        except (ConfigError, DataError, OSError) as error:
            unreadable(" ".join(str(error).split()))


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # A link that leads nowhere, or a file that is gone.
        return 0.0


def _means(rows: Sequence[Mapping[str, object]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for row in rows:
        for key, value in row.items():
            number = number_of(value)
            if number is not None and key not in ("step", "t"):
                found.setdefault(key, []).append(number)
    return {key: sum(values) / len(values) for key, values in found.items()}
