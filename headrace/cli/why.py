"""The verb `why`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from headrace.cli.common import Json, reported_errors
from headrace.inspect.tables import plain_table, show_table
from headrace.wire.api.why import MovedRow, StepDifferences
from headrace.wire.config.kept import kept_tables
from headrace.wire.rundir.metrics import steps_of
from headrace.wire.why.compare import largest_fall
from headrace.wire.why.measure import step_differences

_MOST, _LONGEST = 12, 110


def why(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run directory.", show_default=False)],
    step: Annotated[
        int | None, typer.Argument(help="Default: where the reward or a component fell most.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    with reported_errors(json=json) as output:
        kept_tables(run_dir)
        lines, chosen = steps_of(run_dir), ""
        if step is None:
            fall = largest_fall(lines)
            step, chosen = (fall[0], f"{fall[1]} fell most") if fall else (max(lines, default=0), "the last one")
        found = step_differences(run_dir, lines, step).model_copy(update={"chosen": chosen})
        if output.json:
            output.result(found.model_dump_json())
        else:
            show_table(output.console, Group(*_shown(found)))


def _shown(found: StepDifferences) -> Iterator[RenderableType]:
    first, last, chosen = found.steps_before[0], found.steps_before[-1], f" ({found.chosen})" if found.chosen else ""
    yield Text(f"step {found.step}{chosen} against steps {first} to {last}", style="bold")
    yield Text(f"{found.rollouts} rollouts against {found.rollouts_before}; size in standard deviations\n", style="dim")
    titles = ("", "what", "before", "now", "size", "since step")
    cells = [
        (
            str(at),
            _name(row),
            _number(row.before, row.unit),
            _number(row.now, row.unit),
            f"{row.size:.1f}",
            str(row.since),
        )
        for at, row in enumerate(found.rows[:_MOST], start=1)
    ]
    yield plain_table(titles, cells, folds=["what"], right=("", "before", "now", "size", "since step"))
    yield Text(f"{len(found.rows)} were compared: --json has all", style="dim")
    for at, row in enumerate(found.rows, start=1):
        examples = [*(("before", one) for one in row.examples_before), *(("now", one) for one in row.examples_now)]
        if examples:
            yield Text(f"\n{at} {_name(row)}", style="bold")
        for when, one in examples:
            reward, text = "-" if one.reward is None else f"{one.reward:.3f}", " ".join(one.text.split())
            short = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
            yield Text(f"  {when:6}  {one.id}  {one.value:.4g}  reward {reward}  {short}")
    yield from (Text(note, style="yellow") for note in found.notes)


def _name(row: MovedRow) -> str:
    return f"{row.measure} of {row.column} {row.label}" if row.column else row.measure


def _number(value: float, unit: str) -> str:
    return f"{value:.1%}" if unit == "share" else f"{value:.4g} {unit}".strip()
