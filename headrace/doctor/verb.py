"""The verb `doctor`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from headrace.config.diff import config_file
from headrace.config.resolve import resolve
from headrace.doctor import config_checks, gpu, machine, memory_finding, network, software
from headrace.doctor.findings import Check, Finding, Level, run_checks, verdict
from headrace.doctor.wants import Wants
from headrace.execute import FAILED, FINISHED, Output
from headrace.launch import inherited_environment
from headrace.screen import show_table
from headrace.verb import Json, json_line, told

_STYLES = {Level.OK: "green", Level.NOTE: "dim", Level.WARN: "yellow", Level.FAIL: "bold red"}


def doctor(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="RUN.toml", help="What is to be run here.", show_default=False)
    ] = None,
    run_dir: Annotated[Path, typer.Option("--run-dir", help="Where runs are to be kept.")] = Path("runs"),
    json: Json = False,
) -> None:
    """Checks whether this machine can run (with RUN.toml: can run that); each failure comes with its fix.

    Exit status 1 if anything fails; warnings do not count.
    """
    output = Output.choose(json=json)
    with told(output):
        environment = inherited_environment()
        place = config_file(file) if file else None
        wants = Wants.of(resolve(place, arguments=context.obj or [], environment=environment)) if place else Wants()
        findings = run_checks(all_checks(wants, run_dir, environment))
        show_table(output.console, _table(findings))
        failed = sum(one.level is Level.FAIL for one in findings)
        warned = sum(one.level is Level.WARN for one in findings)
        said = f"{failed} of {len(findings)} checks failed" if failed else "everything that is needed is there"
        output.say(said + (f", {warned} warning{'s' * (warned > 1)}" if warned else ""))
        if output.json:
            output.result(json_line(verdict(findings)))
        raise typer.Exit(FAILED if failed else FINISHED)


def all_checks(wants: Wants, run_dir: Path, environment: Mapping[str, str]) -> list[Check]:
    """In the order in which they are told."""
    reboot = "the driver hangs: dmesg tells why; a reboot is often the way out"
    checks = [
        Check(name="python", look=software.interpreter),
        Check(name="packages", look=software.packages),
        Check(name="gpu", look=lambda: gpu.driver(wants), fix=reboot),
        Check(name="torch", look=lambda: gpu.torch(wants, environment), deadline_s=gpu.TORCH_S, fix=reboot),
        Check(name="sglang", look=lambda: software.sglang(wants, environment), deadline_s=70.0),
        Check(name="processor", look=machine.processor),
        Check(name="memory", look=lambda: machine.memory(wants)),
        Check(name="shared memory", look=lambda: machine.shared_memory(wants)),
        Check(name="disk", look=lambda: machine.disk(run_dir, wants)),
        Check(name="files", look=lambda: machine.files(run_dir), fix="the disk hangs: choose another --run-dir"),
        Check(name="ports", look=lambda: network.ports(wants)),
        Check(name="redis", look=lambda: network.broker(wants, environment), deadline_s=30.0),
        Check(name="sandbox", look=lambda: software.sandbox(wants, environment), deadline_s=70.0),
        Check(name="clock", look=machine.clock),
        Check(name="limits", look=lambda: machine.limits(wants)),
    ]
    if wants.resolved:
        checks.append(Check(name="model", look=lambda: config_checks.model(wants)))
        checks.append(Check(name="memory plan", look=lambda: memory_finding.memory_plan(wants)))
        checks.append(Check(name="data", look=lambda: config_checks.data(wants)))
    return checks


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
