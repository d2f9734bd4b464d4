"""The verb `demo`."""

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import typer

from headrace.cli.common import Json, RunDir, reported_errors
from headrace.cli.train import Resume, start
from headrace.config.resolve import resolve
from headrace.demo.demo import prepared_demo
from headrace.run.preparation.input_checks import check_around
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited
from headrace.wire.rundir.layout import RunPaths


def demo(context: typer.Context, run_dir: RunDir = None, resume: Resume = False, json: Json = False) -> None:
    began = time.monotonic()
    with reported_errors(json=json, place=run_dir or Path("runs")) as output, ExitStack() as held:
        lock = forks = None
        if resume:
            if run_dir is None:
                raise ConfigError("--resume needs --run-dir, the folder of the demo to continue")
            resolved = resolve(RunPaths(run_dir).run_toml, arguments=context.obj, environment=inherited())
        else:
            run_dir = run_dir or Path("runs") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
            check = partial(check_around, fresh=True)
            preparing = prepared_demo(run_dir, context.obj, inherited(), output.say, check=check)
            resolved, lock, forks = held.enter_context(preparing)
        start(resolved, run_dir, output, resume=resume, dry_run=False, began=began, lock=lock, forks=forks)
