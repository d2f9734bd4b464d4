"""The first lines of every service: read its settings, configure the log, run, and log in one line why it failed."""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from headrace.wire import tracing
from headrace.wire.access import process as process_access
from headrace.wire.access.exposure import not_encrypted
from headrace.wire.access.roles import Role
from headrace.wire.config.problems import first_problem
from headrace.wire.config.settings import ServiceSettings
from headrace.wire.errors import ConfigError, HeadraceError
from headrace.wire.host.disk_fault import disk_fault
from headrace.wire.peers import outage
from headrace.wire.process import failpoints
from headrace.wire.process.environment import inherited, keep_out, launched_with, overlay
from headrace.wire.rundir.layout import CONFINED, RunPaths
from headrace.wire.telemetry import metrics
from headrace.wire.telemetry.logs import configure_logging, get_logger

S = TypeVar("S", bound=ServiceSettings)

REFUSED = 2
"""Exit code: settings or data are wrong."""
GIVEN_UP = 3
"""Exit code: a deadline has passed, the disk takes no writes, or the run cannot continue from what is on disk; the log
gives the reason."""


def read_settings(kind: type[S], path: Path | None = None) -> S:
    """Reads the JSON file behind `--config` (or `path`); `headrace.wire.process.environment` overrides it.

    Raises ConfigError naming file and key.
    """
    if path is None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--config", type=Path, required=True, help="resolved settings, written by headrace")
        path = parser.parse_known_args()[0].config
    assert path is not None
    try:
        return kind.model_validate(overlay(json.loads(path.read_text()), launched_with(), kind.model_fields))
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path}: {error}; `headrace train` writes this file") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_problem(error)}") from error


def exit_code(error: BaseException) -> int:
    """Exit code of a process that dies of `error`."""
    if isinstance(error, ConfigError | ValueError):
        return REFUSED
    if isinstance(error, HeadraceError) and error.final:
        return GIVEN_UP
    return 1 if disk_fault(error, Path()) is None else GIVEN_UP


def end_process(code: int) -> NoReturn:
    """Ends the process now. All that must last is on disk; a thread stuck in a collective would hold the exit up.

    So would what experiment trackers register with `atexit`; it is skipped too (wandb: 81 s against a dead server).
    """
    for stream in (sys.stdout, sys.stderr):
        # A log on a full disk keeps what it could not take; that must not change the exit code.
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def _leave_variables_out(service: str, log: FilteringBoundLogger) -> None:
    """Begins again without variables that gRPC has read as it was imported; others are only removed."""
    names = keep_out()
    if names:
        log.warning("variables_left_out", names=names, reason="they would lead connections of the run elsewhere")
    if any(name.startswith("GRPC_") for name in names):
        # The launcher's own are read, and left out, by the new process.
        environment = {
            name: value for name, value in launched_with().items() if name[:5] != "GRPC_" or name not in names
        }
        sys.stdout.flush()
        sys.stderr.flush()
        again = [sys.executable, "-P", "-m", f"headrace.services.{service}", *sys.argv[1:]]
        os.execve(sys.executable, again, environment)


def _events_of(service: str, run_dir: Path) -> Path:
    paths = RunPaths(run_dir)
    return paths.own_events(service) if service in CONFINED else paths.events


def run_service(name: str, kind: type[S], main: Callable[[S], int]) -> int:
    """Reads the settings and runs `main`; returns its exit code, `REFUSED`, `GIVEN_UP`, or 1 for any other error."""
    configure_logging(name, "")
    failpoints.install(name, inherited().get(failpoints.VARIABLE, ""))
    log = get_logger(name)
    _leave_variables_out(name, log)
    place = Path()
    try:
        settings = read_settings(kind)
        place = settings.run_dir
        configure_logging(name, settings.run.id, settings.instance)
        metrics.describe(name, settings.run.id, settings.instance)
        process_access.use(
            Role(name),
            settings.tokens or RunPaths(settings.run_dir).tokens,
            makes=settings.tokens is None,
            tls=settings.tls,
        )
        who = name if name in ("trainer", "orchestrator") else f"{name}-{settings.instance}"
        own = getattr(settings, "events", None) or _events_of(name, settings.run_dir)
        outage.show_as(who, settings.run_dir, own)
        if exposed := not_encrypted(settings):
            log.warning("not_encrypted", what=exposed)
        tracing.start(settings.tracing, service=name, run_id=settings.run.id, instance=settings.instance)
        return main(settings)
    except (ConfigError, ValueError) as error:
        log.error("refused", error=str(error))
        return REFUSED
    except Exception as error:
        known = error if isinstance(error, HeadraceError) and error.final else disk_fault(error, place) or error
        if isinstance(known, HeadraceError):
            log.error("stopped", error=f"{type(known).__name__}: {known}")
            return exit_code(known)
        log.exception("crashed")
        return 1
    finally:
        outage.forget()
        process_access.forget()
        tracing.stop()
