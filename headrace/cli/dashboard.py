"""The verb `dashboard`: a live run's own, or one for a run that has ended."""

import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, json_line, reported_errors
from headrace.operate.page import choose_port, live_address, serve_page
from headrace.run.execute import Output
from headrace.supervisor.once import python
from headrace.wire.environment import inherited


def dashboard(
    run_dir: Annotated[Path, typer.Argument(help="The run directory.", show_default=False)],
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port for a run that has ended; 0 = any free port.")
    ] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    json: Json = False,
) -> None:
    """Prints the address of a live run's dashboard, or serves that of an ended run until Ctrl-C."""
    output = Output.choose(json=json)
    with reported_errors(output):
        address = live_address(run_dir)
        if address:
            output.say(f"the run is alive, its orchestrator serves the dashboard: {address}/")
            _print_address(output, address)
            _open(address, open_)
            return
        port = choose_port(port)
        address = f"http://127.0.0.1:{port}"
        argv = python("headrace.services.orchestrator.dashboard", str(run_dir.resolve()), "--port", str(port))

        def ready() -> None:
            output.say(f"the dashboard is at {address}/ (Ctrl-C ends it)")
            _print_address(output, address)
            _open(address, open_)

        # Not in the run directory: to look at a run changes nothing in it, and it may be read-only.
        with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
            serve_page(argv, port, Path(folder) / "dashboard.log", inherited(), ready)


def _print_address(output: Output, address: str) -> None:
    if output.json:
        output.result(json_line({"url": f"{address}/"}))


def _open(address: str, wanted: bool) -> None:
    if wanted:
        webbrowser.open(f"{address}/")
