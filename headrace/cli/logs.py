"""The verb `logs`."""

import contextlib
import json as json_
import time
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from headrace.cli.common import reported_errors
from headrace.operate.client import check_run_dir, is_alive
from headrace.wire.config.nearest import unknown
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.tail import CHUNK, Tail

_EVERY_S = 0.2
_SHARED = ("run_id", "service", "instance", "logger_name")
"""Not shown: the name of the log says it."""
_render = structlog.dev.ConsoleRenderer(0, colors=False, pad_level=False)


def logs(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", show_default=False)],
    service: Annotated[str, typer.Argument(help="Of this one alone: trainer, rollout, rollout-0, ...")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show what is written until the run ends.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="So many of the newest lines.")] = 100,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with `log` and `line`.")] = False,
) -> None:
    with reported_errors(json=json) as output, contextlib.suppress(KeyboardInterrupt):
        check_run_dir(run_dir)
        tails: dict[Path, Tail] = {}
        first, alive = True, True
        while alive:
            alive = follow and is_alive(run_dir)  # Asked before the read: what an ended run wrote last is read, too.
            found = [entry for path in _files(run_dir, service) for entry in _new(path, tails)]
            found.sort(key=itemgetter(0))
            for _, name, line, fields in found[max(0, len(found) - lines) :] if first else found:
                output.in_json({"log": name, "line": line})
                shown = {key: value for key, value in fields.items() if key not in _SHARED}
                text = str(_render(None, "", shown)) if shown else line
                if not json:
                    output.say("\n".join(f"{name} | {part}" for part in text.splitlines()))
            first = False
            time.sleep(_EVERY_S if alive else 0)


def _files(run_dir: Path, service: str) -> list[Path]:
    """The logs of a service, or all. Raises ConfigError naming those there are."""
    found = {path.stem: path for path in sorted(RunPaths(run_dir).logs.glob("*.log"))}
    chosen = [path for name, path in found.items() if service in ("", name) or name.startswith(f"{service}-")]
    if service and not chosen:
        raise ConfigError(f"{RunPaths(run_dir).logs}: {unknown(service, found)}")
    return chosen


def _new(path: Path, tails: dict[Path, Tail]) -> list[tuple[float, str, str, dict[str, Any]]]:
    """What a log has got since the last look: time, name, line and fields; one without a time has that before it."""
    tail, at, found = tails.setdefault(path, Tail(path, newest=CHUNK)), 0.0, []
    while data := tail.read().data:
        for line in data.decode(errors="replace").splitlines():
            fields: dict[str, Any] = {}
            with contextlib.suppress(ValueError, TypeError, KeyError):
                fields = dict(json_.loads(line))
                at = datetime.fromisoformat(fields["timestamp"]).timestamp()
            found.append((at, path.stem, line, fields))
    return found
