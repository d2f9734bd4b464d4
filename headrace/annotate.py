"""The verb `annotate`: people judge the completions of a run, also after it has ended."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import httpx
import typer

from headrace.execute import Output
from headrace.launch import inherited_environment
from headrace.look import look
from headrace.supervisor.once import ChildFailedError, child_environment, python
from headrace.supervisor.ports import check_free, pick_ports
from headrace.supervisor.process import log_tail
from headrace.verb import told
from wire.entry import REFUSED
from wire.errors import ConfigError, WaitTimeoutError
from wire.lifecycle import die_with_parent

_READY_S = 60.0
_STOP_S = 15.0
_POLL_S = 0.1


def annotate(
    run_dir: Annotated[Path, typer.Argument(help="The run directory.", show_default=False)],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of the page; 0 = a free one.")] = 0,
) -> None:
    """Serves the page on which people judge pairs of completions; Ctrl-C ends it."""
    output = Output.choose(json=False)
    with told(output):
        page = live_page(run_dir)
        if page:
            output.say(f"the run is alive, its orchestrator serves the page: {page}")
        else:
            serve_page(run_dir, port, inherited_environment(), output.say)


def live_page(run_dir: Path) -> str | None:
    """Where the orchestrator of a live run serves the page; None if the run is not alive. Raises ConfigError."""
    shown = look(run_dir)
    port = shown["services"].get("orchestrator", {}).get("http_port")
    if shown["supervisor"] and not port:
        raise ConfigError(f"the run in {run_dir} is just starting; try again in a moment")
    return f"http://127.0.0.1:{port}/annotate" if port else None


def serve_page(run_dir: Path, port: int, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Starts the orchestrator's page as a process of its own and waits until it is told to end.

    Raises ConfigError if there is nothing to judge or the page cannot be served, ChildFailedError if it dies.
    """
    config = run_dir / "config" / "orchestrator.json"
    if not config.is_file() or not any((run_dir / "rollouts").glob("step-*.parquet")):
        raise ConfigError(f"{run_dir} has no rollouts to judge: they are written with each step of the stage rl")
    if port:
        check_free([(port, "--port")])
    port = port or pick_ports(1)[0]
    argv = python(
        "services.orchestrator", "--annotate", "--config", str(config), "--run-dir", str(run_dir.resolve()),
        "--port", str(port),
    )  # fmt: skip
    log = run_dir / "logs" / "annotate.log"
    log.parent.mkdir(exist_ok=True)
    child = _start(argv, child_environment(dict(environment), threads=1), log)
    try:
        _wait_until_ready(child, port, log)
        say(f"judge completions at http://127.0.0.1:{port}/annotate (Ctrl-C ends it)")
        with contextlib.suppress(KeyboardInterrupt):
            if child.wait():
                raise _failure(child, log)
        _end(child)
    finally:
        _kill(child)
    pairs = run_dir / "annotations" / "pairs.jsonl"
    count = len(pairs.read_bytes().splitlines()) if pairs.exists() else 0
    say(f"{count} ranked pairs in {pairs}")


def _start(argv: tuple[str, ...], env: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            # Ctrl-C in the terminal is for this process, which ends its child in order.
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


def _wait_until_ready(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _READY_S
    # trust_env: a proxy of the environment is not for loopback.
    with httpx.Client(trust_env=False, timeout=5.0) as http:
        while time.monotonic() < end:
            if child.poll() is not None:
                raise _failure(child, log)
            with contextlib.suppress(httpx.HTTPError):
                if http.get(f"http://127.0.0.1:{port}/readyz").status_code == httpx.codes.OK:
                    return
            time.sleep(_POLL_S)
    raise WaitTimeoutError("the page to be served", _READY_S)


def _failure(child: subprocess.Popen[bytes], log: Path) -> ConfigError | ChildFailedError:
    message = log_tail(log, lines=1)
    if child.returncode == REFUSED:
        return ConfigError(message.removeprefix("refused: "))
    return ChildFailedError("the page", child.returncode, message or f"see {log}")


def _end(child: subprocess.Popen[bytes]) -> None:
    """In order; a second Ctrl-C does not wait for it."""
    child.terminate()
    with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
        child.wait(_STOP_S)


def _kill(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait(10)
