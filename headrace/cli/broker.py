"""The verb `broker acl`."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, json_line, reported_errors
from headrace.operate.broker_users import ACL_FILE, write_users
from headrace.run.execute import Output
from headrace.wire.streams.redis import GRANTS

broker = typer.Typer(no_args_is_help=True, help="Sets up a Redis or Valkey server for a run.")


@broker.callback()
def _group() -> None:
    """A group, though it has one verb."""


@broker.command("acl")
def acl(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the files go.", show_default=False)],
    url: Annotated[
        str, typer.Option("--url", help="The server: redis://HOST:PORT/0 or rediss://...", show_default=False)
    ],
    run_id: Annotated[str, typer.Option("--run-id", help="The run (run.id) whose keys they may use.")] = "run",
    json: Json = False,
) -> None:
    """Writes an ACL file with a user for each role, and the URL of each; done again it keeps the passwords."""
    output = Output.choose(json=json)
    with reported_errors(output):
        write_users(folder, url, run_id)
        output.say(f"{folder / ACL_FILE}: start the server with --aclfile, or ACL LOAD")
        output.say(f"{folder}/ROLE.url: HEADRACE_BROKER__URL_FILE of each service")
        if output.json:
            output.result(json_line({"acl": str(folder / ACL_FILE), "roles": sorted(GRANTS)}))
