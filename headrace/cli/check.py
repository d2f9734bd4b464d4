"""The verb `check`."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, reported_errors
from headrace.inspect.history.check import check_run
from headrace.inspect.history.receipts import checked_receipt
from headrace.inspect.output import FAILED, FINISHED


def check(
    run_dir: Annotated[Path, typer.Argument(help="The run directory.", show_default=False)],
    receipt: Annotated[
        str, typer.Option("--receipt", metavar="HEX", help="A receipt of this run: proves that its files are as then.")
    ] = "",
    json: Json = False,
) -> None:
    with reported_errors(json=json) as output:
        verdict = check_run(run_dir, checked_receipt(receipt))
        for problem in verdict.problems:
            output.say(f"problem: {problem}")
        for note in verdict.notes:
            output.say(note)
        output.say(verdict.in_words())
        if output.json:
            output.result(verdict.as_json())
        raise typer.Exit(FINISHED if verdict.ok else FAILED)
