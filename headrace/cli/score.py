"""The verb `score`."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, reported_errors
from headrace.run.score import parse_options, reward_table, score_file, scoring_bar, table_of
from headrace.services.reward.scorers.registry import BUILT_IN
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited


def score(
    context: typer.Context,
    source: Annotated[
        Path | None,
        typer.Option(
            "--input", help='JSONL: {"prompt", "completion", "answer"} and other columns.', show_default=False
        ),
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--output", help="JSONL: score (or null), components, reason.", show_default=False)
    ] = None,
    reward: Annotated[str, typer.Option("--reward", help="A scorer: math, code, ... or module:function.")] = "",
    option: Annotated[list[str] | None, typer.Option("--option", help="Option of the scorer, as key=value.")] = None,
    file: Annotated[Path | None, typer.Option("--config", help="Score with the rewards of this RUN.toml.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the scorers.")] = False,
    json: Json = False,
) -> None:
    with reported_errors(json=json, stopped="stopped; no scores were written") as output:
        if listed:
            output.say("\n".join(BUILT_IN))
            return
        if source is None or target is None:
            raise ConfigError(
                "give --input FILE.jsonl and --output FILE.jsonl (and --reward NAME, or --config RUN.toml)"
            )
        table = table_of(reward, parse_options(option or []), reward_table(file, context.obj, inherited()))
        with scoring_bar(output.console) as progress:
            found = score_file(table, source, target, inherited(), progress)
        output.say(f"{found['scored']} scored, {found['abstained']} abstained, in {target}")
        output.in_json({**found, "output": str(target)})
