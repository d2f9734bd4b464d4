"""The copies of the user's own code that a run trains with and plays: made at the start, compared at a resume."""

import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from headrace.config.resolve import Resolved
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.own_code import (
    CodeFiles,
    OwnCode,
    algorithm_code,
    environment_code,
    files_in,
    in_words,
    publish_copy,
    read_files,
    recorded_files,
    stage_copy,
)
from headrace.wire.telemetry.logs import get_logger

MOST_MIB = 16
log = get_logger("headrace.code")


@dataclass(frozen=True, slots=True)
class StagedCode:
    """A copy beside the run's own, until it is checked."""

    aside: Path
    run_dir: Path
    own: OwnCode
    before: CodeFiles | None
    """The files of the run's copy, which this one replaces."""

    def publish(self) -> None:
        """Makes it the run's; a replaced copy is an event."""
        now = read_files(self.aside)
        publish_copy(self.aside, self.own)
        if self.before is not None:
            events = EventLog(self.run_dir, self.own.table, time.time_ns())
            events.append("code_changed", before=self.before.digest, after=now.digest, files=self.before.changed(now))
            events.close()


def staged_code(
    resolved: Resolved, run_dir: Path, *, resume: bool, accept_changed: bool
) -> AbstractContextManager[StagedCode | None]:
    """A copy of `algorithm.path` to be checked and published; None if the run has it already, or needs none.

    Raises ConfigError for a folder that cannot be copied, and for one that differs from the copy of a resumed run.
    """
    source, own = resolved.config.algorithm.path, algorithm_code(run_dir)
    before = recorded_files(own) if resume else None
    if source is None or (before and not _differs(resolved, source, own, before, accept_changed=accept_changed)):
        return nullcontext()
    return _staged(resolved, source, run_dir, own, before)


def staged_environment(resolved: Resolved, run_dir: Path, *, resume: bool) -> AbstractContextManager[StagedCode | None]:
    """A copy of `environment.path` to be checked and published; None if the run has it already, or needs none.

    The caller has compared the modules with those that the run's tasks name. Raises ConfigError for a folder that
    cannot be copied, and for a copy that was edited by hand.
    """
    source, own = resolved.config.environment.path, environment_code(run_dir)
    before = recorded_files(own) if resume else None
    if source is not None and before is not None:
        _keep(resolved, source, own, before)
    return nullcontext() if source is None or before else _staged(resolved, source, run_dir, own, before)


@contextmanager
def _staged(
    resolved: Resolved, source: Path, run_dir: Path, own: OwnCode, before: CodeFiles | None
) -> Iterator[StagedCode]:
    place = resolved.place(own.table, "path")
    if not source.is_dir():
        raise ConfigError(f"{place}: there is no folder {source}")
    _check_size(place, source, run_dir)
    aside = stage_copy(source, own)
    try:
        yield StagedCode(aside, run_dir, own, before)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _check_size(place: str, source: Path, run_dir: Path) -> None:
    """Refuses a folder that holds more than code: all of it would be copied. Raises ConfigError."""
    way_out = "put your modules into a folder of their own"
    if run_dir.resolve().is_relative_to(source.resolve()):
        raise ConfigError(
            f"{place}: {source} is copied into the run directory {run_dir}, which is inside it: {way_out}"
        )
    sizes = {path: path.stat().st_size for path in files_in(source) if path.is_file()}
    if sum(sizes.values()) > MOST_MIB * 1024 * 1024:
        largest = max(sizes, key=lambda path: sizes[path])
        raise ConfigError(
            f"{place}: {source} is copied into the run directory and holds more than {MOST_MIB} MiB "
            f"(the largest file is {largest.relative_to(source)}): {way_out}"
        )


def _keep(resolved: Resolved, source: Path, own: OwnCode, before: CodeFiles) -> None:
    """Checks the copy that goes on to be played. Raises ConfigError if it was edited by hand."""
    place, copy = resolved.place(own.table, "path"), read_files(own.folder)
    if copy.digest != before.digest:
        raise ConfigError(
            f"{place}: its copy {own.folder} was edited ({in_words(copy.changed(before))}): restore it from {source}, "
            "or begin a new run"
        )
    now = read_files(source) if source.is_dir() else before
    if now.digest != before.digest:
        # Other modules have been refused by the digest of the run's tasks: these are files beside them.
        log.warning("environment_files_have_changed", files=now.changed(before), used=str(own.folder))


def _differs(resolved: Resolved, source: Path, own: OwnCode, before: CodeFiles, *, accept_changed: bool) -> bool:
    """Whether the copy must be replaced, which must have been accepted. Raises ConfigError."""
    if not source.is_dir():
        log.info("algorithm_path_is_gone", path=str(source), used=str(own.folder))
        source = own.folder
    now = read_files(source)
    if now.digest == before.digest and read_files(own.folder).digest == before.digest:
        return False
    if not accept_changed:
        names = now.changed(before) or read_files(own.folder).changed(before)
        raise ConfigError(
            f"{resolved.place(own.table, 'path')}: {source} is no longer the code that the run trains with "
            f"({now.digest[:12]}, was {before.digest[:12]}; {in_words(names)}): restore it, or resume with "
            "--accept-changed-code"
        )
    return True
