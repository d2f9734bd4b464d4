"""The verb `explain`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, json_line, reported_errors
from headrace.inspect.explain.gather import gather, prompt_of
from headrace.inspect.explain.names import Wanted, parse_name
from headrace.inspect.explain.show import show
from headrace.inspect.explain.story import Story, build_story
from headrace.inspect.status import look
from headrace.inspect.tables import show_table
from headrace.wire.config.kept import kept_tables
from headrace.wire.contracts import group_id
from headrace.wire.errors import ConfigError


def explain(
    name: Annotated[
        str, typer.Argument(metavar="ROLLOUT|GROUP", help="Such as demo/g00000059/3, g59, e25-3.", show_default=False)
    ],
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run directory.", show_default=False)],
    json: Json = False,
) -> None:
    with reported_errors(json=json) as output:
        story = explain_in(name, run_dir)
        if output.json:
            output.result(json_line(asdict(story)))
        else:
            show_table(output.console, show(story))


def explain_in(name: str, run_dir: Path) -> Story:
    """The story. Raises ConfigError for an invalid name, or one that the run has never issued."""
    wanted = parse_name(name, str(kept_tables(run_dir).get("run", {}).get("id", "")))
    status = look(run_dir).orchestrator
    found = gather(run_dir, wanted.group_id)
    if not found.events and found.batch is None and found.dropped is None:
        raise ConfigError(f"{wanted.group_id} was never issued{_newest(wanted, found.newest_issued)}")
    story = build_story(wanted, found, status)
    if wanted.rollout is not None and found.rollouts and not story.rollouts:
        raise ConfigError(f"{wanted.group_id} has rollouts 0 to {len(found.rollouts) - 1}, not {wanted.rollout}")
    if not story.prompt:
        held_out = wanted.index if wanted.eval_version is not None else None
        story.prompt = prompt_of(run_dir, story.sample_id, held_out=held_out)
    return story


def _newest(wanted: Wanted, newest: int) -> str:
    if wanted.eval_version is not None:
        return " for an evaluation (or its prompt has no answer yet)"
    return f": the newest group is {group_id(wanted.group_id.partition('/')[0], newest)}" if newest >= 0 else ""
