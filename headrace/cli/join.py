"""`headrace join`: its command line."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, reported_errors
from headrace.run.join import join_node
from headrace.wire.process.environment import inherited


def join(
    run_dir: Annotated[Path, typer.Argument(help="The run directory, on a shared file system.", show_default=False)],
    node: Annotated[int, typer.Option("--node", help="The number of this machine, from 1.", show_default=False)],
    rendezvous: Annotated[
        str, typer.Option("--rendezvous", metavar="HOST:PORT", help="Default: the run's trainer.rendezvous.")
    ] = "",
    json: Json = False,
) -> None:
    with reported_errors(json=json, stopped="stopped") as output:
        raise typer.Exit(join_node(run_dir.resolve(), node, rendezvous, inherited(), output))
