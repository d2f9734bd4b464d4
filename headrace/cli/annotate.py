"""The verb `annotate`: people judge the completions of a run, also after it has ended."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, json_line, reported_errors
from headrace.operate.page import PageAccess, choose_port, live_address, make_token_file, serve_page
from headrace.run.execute import Output
from headrace.supervisor.once import python
from headrace.wire.access.roles import Role
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited
from headrace.wire.rundir import rollouts
from headrace.wire.rundir.layout import RunPaths


def annotate(
    run_dir: Annotated[Path, typer.Argument(help="The run directory.", show_default=False)],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the page; 0 = any free port.")] = 0,
    json: Json = False,
) -> None:
    """Serves the page on which people judge pairs of completions, until Ctrl-C."""
    output = Output.choose(json=json)
    with reported_errors(output), tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        address = live_page(run_dir)
        if address:
            # The annotators' token opens nothing else: the link is for them.
            page = PageAccess(address, RunPaths(run_dir).tokens / Role.ANNOTATOR)
            output.say(f"the run is alive, its orchestrator serves the page: {page.in_words(json=output.json)}")
            _print_address(output, page)
        else:
            serve_annotation(run_dir, port, inherited(), output, make_token_file(Path(folder), Role.ANNOTATOR))


def _print_address(output: Output, page: PageAccess) -> None:
    if output.json:
        output.result(json_line(page.as_json()))


def live_page(run_dir: Path) -> str | None:
    """Where the orchestrator of a live run serves the page; None if the run is not alive. Raises ConfigError."""
    address = live_address(run_dir)
    return f"{address}/annotate" if address else None


def serve_annotation(
    run_dir: Path, port: int, environment: Mapping[str, str], output: Output, token_file: Path
) -> None:
    """Serves the page until it is asked to end, to callers with the token in `token_file`, which is the annotators'.

    The run's own tokens may be elsewhere (HEADRACE_TOKENS), and none are made in its directory. Raises ConfigError
    if there is nothing to judge or the page cannot be served, ChildFailedError if it dies.
    """
    config = RunPaths(run_dir).settings("orchestrator")
    if not config.is_file() or not rollouts.files(RunPaths(run_dir).rollouts):
        raise ConfigError(f"{run_dir} has no rollouts to judge: they are written with each step of the stage rl")
    port = choose_port(port)
    argv = python(
        "headrace.services.orchestrator", "--annotate", "--config", str(config), "--run-dir", str(run_dir.resolve()),
        "--port", str(port), "--token-file", str(token_file),
    )  # fmt: skip
    page = PageAccess(f"http://127.0.0.1:{port}/annotate", token_file)

    def ready() -> None:
        output.say(f"judge completions at {page.in_words(json=output.json)} (Ctrl-C ends it)")
        _print_address(output, page)

    serve_page(argv, port, RunPaths(run_dir).log("annotate"), environment, ready)
    pairs = RunPaths(run_dir).ranked_pairs
    count = len(pairs.read_bytes().splitlines()) if pairs.exists() else 0
    output.say(f"{count} ranked pairs in {pairs}")
