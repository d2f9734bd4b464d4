"""`headrace score`: scores a file of completions without a run, with the reward service's package."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from headrace.config.resolve import resolve
from headrace.run.child import last_words
from headrace.services.reward.scorers.registry import BUILT_IN
from headrace.services.reward.settings import RewardSettings, RewardTable
from headrace.supervisor.once import ChildFailedError, child, child_environment, python
from headrace.wire.config.settings import RunTable
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.process.entry import REFUSED

ShowProgress = Callable[[Mapping[str, object]], None]
"""Callback that receives the progress repeatedly."""


def table_of(name: str, options: Mapping[str, object], given: RewardTable | None) -> RewardTable:
    """The rubric to score with: the scorer `name`, or the config's own."""
    if options and not name:
        raise ConfigError("--option goes with --reward NAME; a config has its scorers' options in it")
    if given is not None and not name:
        return given
    if not name:
        raise ConfigError(f"say which scorer: --reward NAME ({', '.join(BUILT_IN)}), or --config RUN.toml")
    base = (given or RewardTable()).model_dump(mode="python")
    if ":" in name and base["path"] is None:
        base["path"] = Path.cwd()
    scorers = ({"name": name, "options": dict(options)},)
    return RewardTable.model_validate(base | {"scorers": scorers, "tasks": {}, "combination": "weighted_sum"})


@contextmanager
def scoring_bar(console: Console) -> Iterator[ShowProgress]:
    """Shows the progress on a terminal."""
    columns = (
        TextColumn("scoring"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[mean]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("scoring", total=None, mean="")

        def show(found: Mapping[str, Any]) -> None:
            mean = "" if found["mean"] is None else f"mean {found['mean']:.3f}"
            bar.update(task, total=found["total"], completed=found["done"], mean=found["waiting"] or mean)

        yield show


def reward_table(file: Path | None, arguments: Sequence[str], environment: Mapping[str, str]) -> RewardTable | None:
    """Resolves `[reward]` of a `run.toml` and of dotted options; None if neither is given. Raises ConfigError."""
    if file is None and not arguments:
        return None
    # Without a file there is no data; nothing is read from it here.
    given = [*arguments, *([] if file else ["--data.path=none.jsonl"])]
    section = resolve(file, arguments=given, environment=environment).config.reward
    return RewardTable.model_validate(section.model_dump(mode="python", include=set(RewardTable.model_fields)))


def parse_options(texts: list[str]) -> dict[str, object]:
    """Parses `key=value` texts; a value is JSON, or else text. Raises ConfigError."""
    found: dict[str, object] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ConfigError(f"--option {text!r}: an option is given as key=value")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found


def score_file(
    table: RewardTable, source: Path, target: Path, environment: Mapping[str, str], show: ShowProgress
) -> dict[str, object]:
    """Scores `source` into `target`; returns the final progress. Raises ConfigError, DataError, ChildFailedError."""
    if not source.is_file():
        raise DataError(f"there is no file {source}")
    if target.resolve() == source.resolve() or not target.resolve().parent.is_dir():
        raise ConfigError(f"--output {target}: must be another file, in a folder that exists")
    env = child_environment(dict(environment), threads=1)
    with tempfile.TemporaryDirectory(prefix="headrace-score-") as folder:
        settings = RewardSettings(run=RunTable(id="score"), run_dir=Path(folder), reward=table)
        config = Path(folder) / "reward.json"
        config.write_text(settings.model_dump_json(serialize_as_any=True), encoding="utf-8")
        argv = python(
            "headrace.services.reward", "--config", str(config), "--score", str(source.resolve()), "--output",
            str(target.resolve()),
        )  # fmt: skip
        return _follow(argv, env, Path(folder) / "log", show)


def _follow(argv: tuple[str, ...], env: dict[str, str], log: Path, show: ShowProgress) -> dict[str, object]:
    """Runs the child to its end and passes its progress on. It dies with this process."""
    last: dict[str, object] = {}
    with log.open("wb") as errors, child(argv, env, stdout=subprocess.PIPE, stderr=errors) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = json.loads(line)
            show(last)
        status = process.wait()
    if status:
        words = last_words(log.read_text(errors="replace"))
        raise DataError(words) if status == REFUSED else ChildFailedError("scoring", status, words)
    return last
