"""The commands `status` and `watch`: what waits for what, once or until the run ends."""

from typing import Annotated

import typer

from headrace.cli.common import Json, TokenFile, Url, Where, json_line, reported_errors
from headrace.cli.watch import watch as watch_run
from headrace.inspect.output import FINISHED
from headrace.inspect.status import look_where, show_status


def status(run_dir: Where = None, url: Url = "", token_file: TokenFile = None, json: Json = False) -> None:
    with reported_errors(json=json) as output:
        shown = look_where(run_dir, url, token_file)
        if shown.refused:
            output.say(shown.refused)
        if output.json:
            output.result(json_line(shown.as_json()))
        else:
            show_status(shown, output.console)


def watch(
    run_dir: Where = None,
    url: Url = "",
    token_file: TokenFile = None,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks.")] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a look.")] = False,
) -> None:
    with reported_errors(json=json) as output:
        try:
            ended = watch_run(lambda: look_where(run_dir, url, token_file), output, every_s=every)
        except KeyboardInterrupt:
            ended = FINISHED
        raise typer.Exit(ended)
