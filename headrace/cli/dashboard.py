"""The verb `dashboard`: a live run's own, or one for a run that has ended."""

import secrets
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, json_line, reported_errors
from headrace.operate.page import choose_port, link_of, live_address, open_in_browser, serve_page
from headrace.run.execute import Output
from headrace.supervisor.once import python
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import TOKEN_BYTES, token_of
from headrace.wire.environment import inherited
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
    """Prints the link to a live run's dashboard, or serves that of an ended run until Ctrl-C.

    The link has a token: it is for the owner of the run.
    """
    output = Output.choose(json=json)
    with reported_errors(output), tempfile.TemporaryDirectory(prefix="headrace-") as name:
        # Not in the run directory: to look at a run changes nothing in it, and it may be read-only.
        folder = Path(name)
        address = live_address(run_dir)
        if address:
            link = link_of(f"{address}/", token_of(RunPaths(run_dir).tokens, Role.OPERATOR))
            output.say(f"the run is alive, its orchestrator serves the dashboard: {link}")
            _print_address(output, link)
            if open_:
                open_in_browser(link, folder)
                time.sleep(_BROWSER_S)
            return
        _serve(run_dir, choose_port(port), folder, output, open_=open_)


def _serve(run_dir: Path, port: int, folder: Path, output: Output, *, open_: bool) -> None:
    """Serves until Ctrl-C, to callers with a token that is made for this server."""
    token, file = secrets.token_hex(TOKEN_BYTES), folder / "token"
    file.touch(mode=0o600)
    file.write_text(token, encoding="ascii")
    link = link_of(f"http://127.0.0.1:{port}/", token)
    argv = python(
        "headrace.services.orchestrator.dashboard", str(run_dir.resolve()), "--port", str(port),
        "--token-file", str(file),
    )  # fmt: skip

    def ready() -> None:
        output.say(f"the dashboard is at {link} (Ctrl-C ends it)")
        _print_address(output, link)
        if open_:
            open_in_browser(link, folder)

    serve_page(argv, port, folder / "dashboard.log", inherited(), ready)


def _print_address(output: Output, link: str) -> None:
    if output.json:
        output.result(json_line({"url": link}))
