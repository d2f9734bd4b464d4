"""The verbs `runs list` and `runs compare`."""

import sys
import time
from collections.abc import Sequence
from csv import DictWriter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from headrace.cli.common import Json, json_line, reported_errors
from headrace.inspect.differences import difference_table, differences
from headrace.inspect.results import EventTotals, left_out_in_words, totals_of
from headrace.inspect.runs.facts import RunFacts, facts_of, runs_in
from headrace.inspect.screen import SHOWN
from headrace.inspect.tables import plain_table, show_table
from headrace.inspect.waits import duration
from headrace.wire.config.kept import flatten, kept_tables
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.evals import eval_in_words

runs = typer.Typer(no_args_is_help=True)


@runs.command("list")
def list_(
    folder: Annotated[Path, typer.Argument(help="The folder of run directories.")] = Path("runs"), json: Json = False
) -> None:
    """Lists the run directories in a folder: state, steps, reward and held-out accuracy."""
    with reported_errors(json=json) as output:
        found = list(runs_in(folder, output.complain))
        if output.json:
            output.result(json_line([asdict(one) for one in found]))
        elif not found:
            output.say(f"there are no runs in {folder}")
        else:
            show_table(output.console, _listed(found))


@runs.command("compare")
def compare(
    run_dirs: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR...", help="Two or more run directories.", show_default=False)
    ],
    csv: Annotated[bool, typer.Option("--csv", help="All numbers as CSV, a line a run.")] = False,
    json: Json = False,
) -> None:
    """Compares what runs came to (means of the last ten steps), and the keys in which their configs differ."""
    with reported_errors(json=json) as output:
        if len(run_dirs) < 2:
            raise ConfigError("give two run directories or more")
        found = [facts_of(run_dir) for run_dir in run_dirs]
        if csv:
            rows = [dict(flatten(asdict(one))) for one in found]
            table = DictWriter(sys.stdout, dict.fromkeys(key for row in rows for key in row))
            table.writeheader()
            table.writerows(rows)
            return
        totals = [totals_of(run_dir) for run_dir in run_dirs]
        differ = differences([kept_tables(run_dir) for run_dir in run_dirs])
        if output.json:
            rows = [
                {**asdict(one), "groups_dropped": total.groups_dropped, "events_left_out": total.left_out}
                for one, total in zip(found, totals, strict=True)
            ]
            config = [{"key": each.key, "values": list(each.values)} for each in differ]
            output.result(json_line({"runs": rows, "config": config}))
            return
        show_table(output.console, _compared(found, totals))
        for one, total in zip(found, totals, strict=True):
            if total.left_out:
                output.say(f"{one.name}: {left_out_in_words(total.left_out)}")
        output.say("")
        if differ:
            show_table(output.console, difference_table([one.name for one in found], differ))
        else:
            output.say("the configs are the same")


def _listed(found: Sequence[RunFacts]) -> Table:
    titles = ("run", "stage", "state", "steps", "reward", "held-out", "time", "began")
    rows = []
    for one in found:
        reward = f"{one.last['reward_mean']:.3f}" if "reward_mean" in one.last else "-"
        began = "-" if one.began is None else time.strftime("%m-%d %H:%M", time.localtime(one.began))
        rows.append((one.name, one.stage, one.state, _steps(one), reward, _held_out(one), _time(one), began))
    return plain_table(titles, rows, right=("steps", "reward", "held-out", "time"))


def _compared(found: Sequence[RunFacts], totals: Sequence[EventTotals]) -> Table:
    best = ("-" if one.eval_best is None else eval_in_words(one.eval_measure, one.eval_best) for one in found)
    rows = [
        ("state", *(one.state for one in found)),
        ("steps", *map(_steps, found)),
        ("time", *map(_time, found)),
        ("held-out", *map(_held_out, found)),
        ("best", *best),
    ]
    for key, (title, form) in SHOWN.items():
        if any(key in one.last for one in found):
            rows.append((title, *(format(one.last[key], form) if key in one.last else "-" for one in found)))
    rows.append(("groups dropped", *(str(sum(total.groups_dropped.values())) for total in totals)))
    names = [one.name for one in found]
    return plain_table(["", *names], rows, folds=names, right=names)


def _time(one: RunFacts) -> str:
    return "-" if one.seconds is None else duration(one.seconds)


def _steps(one: RunFacts) -> str:
    return str(one.steps) if one.max_steps is None else f"{one.steps}/{one.max_steps}"


def _held_out(one: RunFacts) -> str:
    if one.eval_before is None or one.eval_after is None:
        return "-"
    before, after = (eval_in_words(one.eval_measure, value) for value in (one.eval_before, one.eval_after))
    return f"{one.eval_measure} {before} -> {after}"
