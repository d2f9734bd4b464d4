"""The verb `annotate`: people judge the completions of a run, also after it has ended."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, reported_errors
from headrace.inspect.output import Output
from headrace.operate.page import PageAccess, choose_port, live_address, make_token_file, serve_page
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
    with reported_errors(json=json) as output, tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        if address := live_address(run_dir):
            # The annotators' token opens nothing else: the link is for them.
            page = PageAccess(f"{address}/annotate", RunPaths(run_dir).tokens / Role.ANNOTATOR)
            page.show(output, "the run is alive, its orchestrator serves the page: {}")
        else:
            serve_annotation(run_dir, port, inherited(), output, make_token_file(Path(folder), Role.ANNOTATOR))


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
    log = RunPaths(run_dir).log("annotate")
    serve_page(argv, port, log, environment, lambda: page.show(output, "judge completions at {} (Ctrl-C ends it)"))
    pairs = RunPaths(run_dir).ranked_pairs
    count = len(pairs.read_bytes().splitlines()) if pairs.exists() else 0
    output.say(f"{count} ranked pairs in {pairs}")
