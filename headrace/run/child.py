"""Runs a service's module as a child for one job or for a while, with its settings in a temporary file."""

import contextlib
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.supervisor.fork_server.client import ForkServer
from headrace.supervisor.once import ChildFailedError, child, child_environment, lines_of, python, run_once
from headrace.wire.config.settings import ServiceSettings
from headrace.wire.errors import ConfigError, WaitTimeoutError
from headrace.wire.process.entry import REFUSED


def run_child(
    what: str,
    module: str,
    *arguments: str,
    settings: ServiceSettings,
    environment: Mapping[str, str],
    timeout_s: float,
    log: Path | None = None,
    progress: Callable[[], str] | None = None,
    fork_server: ForkServer | None = None,
) -> dict[str, Any]:
    """Runs it to its end and returns the JSON object on the last line of its stdout; an empty one with a `log`.

    A long wait is reported on stderr, with `progress` in words. Raises ConfigError with its message if it refuses its
    settings; ChildFailedError and WaitTimeoutError name the log.
    """
    env = child_environment(dict(environment), threads=settings.run.threads, device=settings.run.device)
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        config = Path(folder) / "settings.json"
        config.write_text(settings.model_dump_json(), encoding="utf-8")
        argv = python(module, *arguments, "--config", str(config))
        try:
            printed = run_once(
                what, argv, env=env, log=log, timeout_s=timeout_s, fork_server=fork_server, progress=progress
            )
        except ChildFailedError as error:
            words = log.read_text(encoding="utf-8", errors="replace") if log else error.message
            if error.status == REFUSED:
                raise ConfigError(last_words(words)) from None
            where = f"; its log is {log}" if log else ""
            raise ChildFailedError(what, error.status, last_words(words) + where) from None
        except WaitTimeoutError as error:
            raise WaitTimeoutError(f"{what} (its log is {log})" if log else what, error.seconds) from None
    found: dict[str, Any] = {} if log else json.loads(printed.strip().splitlines()[-1])
    return found


@dataclass(frozen=True, slots=True)
class Talker:
    """A child that reads and prints lines."""

    process: subprocess.Popen[bytes]
    log: Path

    def say(self, line: str) -> None:
        """Gives it a line."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `objects` says why it has ended.
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def objects(self, what: str, timeout_s: float) -> Iterator[dict[str, Any]]:
        """The JSON objects that it prints. Raises at its end as `run_child`; WaitTimeoutError where none comes."""
        for line in lines_of(self.process, what, timeout_s):
            if line.startswith(b"{"):
                yield json.loads(line)
        status, words = self.process.wait(10), last_words(self.log.read_text(encoding="utf-8", errors="replace"))
        raise ConfigError(words) if status == REFUSED else ChildFailedError(what, status, words)


@contextlib.contextmanager
def talker(module: str, *arguments: str, settings: ServiceSettings, environment: Mapping[str, str]) -> Iterator[Talker]:
    """Runs the module until the block ends."""
    env = child_environment(dict(environment), threads=settings.run.threads, device=settings.run.device)
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        config, log = Path(folder) / "settings.json", Path(folder) / "log"
        config.write_text(settings.model_dump_json(), encoding="utf-8")
        argv, pipe = python(module, *arguments, "--config", str(config)), subprocess.PIPE
        with log.open("wb") as errors, child(argv, env, stdin=pipe, stdout=pipe, stderr=errors) as process:
            yield Talker(process, log)


_RAISED = re.compile(r"[\w.]+(Error|Exception|Interrupt)\b")
"""The end of a traceback that Python itself printed."""


def last_words(log: str) -> str:
    """The message with which a service gave up, from its log: the last line that has an error or an exception."""
    lines = log.strip().splitlines()
    for line in reversed(lines):
        if _RAISED.match(line):
            return line
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(found, dict) and (found.get("exception") or "error" in found):
            return _in_words(line) if found.get("exception") else str(found["error"])
    return _in_words(lines[-1]) if lines else "it printed nothing"


def _in_words(line: str) -> str:
    """Formats a log line for the user: the last line of its traceback, else its event."""
    try:
        found = json.loads(line)
    except ValueError:
        return line
    if not isinstance(found, dict):
        return line
    trace = str(found.get("exception") or "").strip().splitlines()
    return trace[-1] if trace else str(found.get("event", line))
