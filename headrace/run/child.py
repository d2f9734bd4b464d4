"""Runs a service's module as a child for one job, with its settings in a temporary file."""

import json
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace.supervisor.fork_server.client import ForkServer
from headrace.supervisor.once import ChildFailedError, child_environment, python, run_once
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
