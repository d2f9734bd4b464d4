"""What is no regular file holds no reader of a run directory up: it is refused at once, in one line with its path."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.config.toml import kept_tables
from headrace.inspect.runs.facts import facts_of
from headrace.services.orchestrator.dashboard.ended import read_config
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.host.regular_file import IrregularFileError, open_regular, read_regular
from headrace.wire.rundir import events, jsonl, metrics, rollouts
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.tail import Added, Tail

WAIT_S = 60
"""Ends a reader that hangs."""


def made(path: Path, kind: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                before = Path.cwd()
                os.chdir(path.parent)
                try:
                    server.bind(path.name)
                finally:
                    os.chdir(before)
    return path


KINDS = ("pipe", "device", "folder", "socket")


def outcome(act: Callable[[], object]) -> object:
    """What `act` returns or raises; the test fails if it waits for ever."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(act())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert found, "it hangs"
    return found[0]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_refused_at_once_with_its_path(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path / "odd", kind)
    for act in (
        open_regular,
        read_regular,
        lambda one: list(jsonl.read(one)),
        lambda one: list(jsonl.read_backwards(one)),
    ):
        error = outcome(lambda act=act: act(path))  # type: ignore[misc]
        assert isinstance(error, IrregularFileError)
        assert str(error) == f"{path}: is no regular file, and is not read: move it away"
    assert outcome(lambda: jsonl.last(path)) == {}
    assert outcome(lambda: Tail(path).read()) == Added()
    parquet = outcome(lambda: rollouts.read(path, ("step",)))
    assert isinstance(parquet, DataError) and str(path) in str(parquet) and "no regular file" in str(parquet)


READERS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    "metrics": (lambda run: RunPaths(run).metrics, facts_of),
    "evals": (lambda run: RunPaths(run).evals, facts_of),
    "steps": (lambda run: RunPaths(run).metrics, metrics.steps_of),
    "config": (lambda run: RunPaths(run).run_toml, kept_tables),
    "config of the dashboard": (lambda run: RunPaths(run).run_toml, read_config),
    "events": (lambda run: RunPaths(run).events / "trainer-1.jsonl", lambda run: list(events.read_events(run))),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_in_a_run_directory_is_named_by_each_reader(tmp_path: Path, reader: str) -> None:
    place, read = READERS[reader]
    run = tmp_path / "run"
    RunPaths(run).config.mkdir(parents=True)
    RunPaths(run).run_toml.write_text('[run]\nid = "r"\n')
    path = place(run)
    path.unlink(missing_ok=True)
    made(path, "pipe")
    error = outcome(lambda: read(run))
    # Some look first whether there is a file at all.
    assert isinstance(error, DataError | ConfigError) and len(str(error).splitlines()) == 1
    assert str(path) in str(error) or "it has no config/run.toml" in str(error)
