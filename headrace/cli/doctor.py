"""The verb `doctor`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from headrace.cli.common import Json, reported_errors
from headrace.cli.gpu import try_gpu
from headrace.config.resolve import resolve, settle
from headrace.doctor.all_checks import all_checks
from headrace.doctor.findings import Finding, Level, run_checks, verdict
from headrace.doctor.wants import Wants
from headrace.inspect.output import FAILED, FINISHED
from headrace.inspect.tables import show_table
from headrace.wire.config.kept import config_file
from headrace.wire.process.environment import inherited

_STYLES = {Level.OK: "green", Level.NOTE: "dim", Level.WARN: "yellow", Level.FAIL: "bold red"}


def doctor(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="RUN.toml", help="Config to check for this machine.", show_default=False)
    ] = None,
    run_dir: Annotated[Path, typer.Option("--run-dir", help="Folder for run directories.")] = Path("runs"),
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Try this GPU itself: collectives, snapshots, training steps (minutes).")
    ] = False,
    json: Json = False,
) -> None:
    with reported_errors(json=json) as output:
        environment = inherited()
        if gpu:
            raise typer.Exit(try_gpu(output, environment))
        place = config_file(file) if file else None
        wants = Wants()
        if place:
            resolved = resolve(place, arguments=context.obj or [], environment=environment)
            wants = Wants.of(settle(resolved))
        findings = run_checks(all_checks(wants, run_dir, environment))
        show_table(output.console, _table(findings))
        failed = sum(one.level is Level.FAIL for one in findings)
        warned = sum(one.level is Level.WARN for one in findings)
        said = f"{failed} of {len(findings)} checks failed" if failed else "everything that is needed is there"
        output.say(said + (f", {warned} warning{'s' * (warned > 1)}" if warned else ""))
        output.in_json(verdict(findings))
        raise typer.Exit(FAILED if failed else FINISHED)


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for one in findings:
        said = Text(one.said)
        if one.fix:
            said.append(f"\nfix: {one.fix}", style="bold")
        table.add_row(Text(str(one.level), style=_STYLES[one.level]), one.name, said)
    return table
