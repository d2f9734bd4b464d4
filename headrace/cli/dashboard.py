"""The verb `dashboard`: a live run's own, or one for a run that has ended."""

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, reported_errors
from headrace.inspect.output import Output
from headrace.operate.page import PageAccess, choose_port, live_address, make_token_file, open_in_browser, serve_page
from headrace.supervisor.once import python
from headrace.wire.access.roles import Role
from headrace.wire.process.environment import inherited
from headrace.wire.rundir.layout import RunPaths

_BROWSER_S = 10.0
"""For a browser to start and read the file that leads it to the page."""


def dashboard(
    run_dir: Annotated[Path, typer.Argument(help="The run directory.", show_default=False)],
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port for a run that has ended; 0 = any free port.")
    ] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    json: Json = False,
) -> None:
    with reported_errors(json=json) as output, tempfile.TemporaryDirectory(prefix="headrace-") as name:
        # Not in the run directory: to look at a run changes nothing in it, and it may be read-only.
        folder = Path(name)
        address = live_address(run_dir)
        if address:
            page = PageAccess(f"{address}/", RunPaths(run_dir).tokens / Role.OPERATOR)
            page.show(output, "the run is alive, its orchestrator serves the dashboard: {}")
            if open_:
                open_in_browser(page.link, folder)
                time.sleep(_BROWSER_S)
            return
        _serve(run_dir, choose_port(port), folder, output, open_=open_)


def _serve(run_dir: Path, port: int, folder: Path, output: Output, *, open_: bool) -> None:
    """Serves until Ctrl-C, to callers with a token that is made for this server."""
    page = PageAccess(f"http://127.0.0.1:{port}/", make_token_file(folder, Role.OPERATOR))
    argv = python(
        "headrace.services.orchestrator.dashboard", str(run_dir.resolve()), "--port", str(port),
        "--token-file", str(page.token_file),
    )  # fmt: skip

    def ready() -> None:
        page.show(output, "the dashboard is at {} (Ctrl-C ends it)")
        if open_:
            open_in_browser(page.link, folder)

    serve_page(argv, port, folder / "dashboard.log", inherited(), ready)
