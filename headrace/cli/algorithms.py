"""The verb `algorithms`."""

from typing import Annotated

import typer

from headrace.cli.common import Json, json_line, reported_errors
from headrace.reference.algorithms import as_text, describe


def algorithms(
    name: Annotated[str, typer.Argument(help="Only this one, with all its keys.", show_default=False)] = "",
    json: Json = False,
) -> None:
    with reported_errors(json=json) as output:
        found = describe(name)
        if json:
            output.result(json_line([one.as_json() for one in found]))
        else:
            output.say(as_text(found, whole=bool(name)))
