"""The copy of the user's own code that a run trains with: made at the start, compared at a resume."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.config.resolve import Resolved
from headrace.services.trainer.durability.own_code import (
    CodeFiles,
    in_words,
    publish_copy,
    read_files,
    recorded_files,
    stage_copy,
)
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.telemetry import get_logger

MOST_MIB = 16
log = get_logger("headrace.code")


@dataclass(frozen=True, slots=True)
class StagedCode:
    """A copy beside that of the run, until it is checked."""

    aside: Path
    run_dir: Path
    before: CodeFiles | None
    """The files of the run's copy, which this one replaces."""

    def publish(self) -> None:
        """Makes it the run's; a replaced copy is an event."""
        now = read_files(self.aside)
        publish_copy(self.aside, self.run_dir)
        if self.before is not None:
            events = EventLog(self.run_dir, "algorithm", time.time_ns())
            events.append("code_changed", before=self.before.digest, after=now.digest, files=self.before.changed(now))
            events.close()


@contextmanager
def staged_code(
    resolved: Resolved, run_dir: Path, *, resume: bool, accept_changed: bool
) -> Iterator[StagedCode | None]:
    """A copy of `algorithm.path` to be checked and published; None if the run has it already, or needs none.

    Raises ConfigError for a folder that cannot be copied, and for one that differs from the copy of a resumed run.
    """
    source = resolved.config.algorithm.path
    if source is None:
        yield None
        return
    place = resolved.place("algorithm", "path")
    before = recorded_files(run_dir) if resume else None
    if before is not None and not _differs(place, source, run_dir, before, accept_changed=accept_changed):
        yield None
        return
    if not source.is_dir():
        raise ConfigError(f"{place}: there is no folder {source}")
    _check_size(place, source, run_dir)
    aside = stage_copy(source, run_dir)
    try:
        yield StagedCode(aside, run_dir, before)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _check_size(place: str, source: Path, run_dir: Path) -> None:
    """Refuses a folder that holds more than code: all of it would be copied. Raises ConfigError."""
    way_out = "put your modules into a folder of their own"
    if run_dir.resolve().is_relative_to(source.resolve()):
        raise ConfigError(
            f"{place}: {source} is copied into the run directory {run_dir}, which is inside it: {way_out}"
        )
    sizes = {path: path.stat().st_size for path in source.rglob("*") if path.is_file()}
    if sum(sizes.values()) > MOST_MIB * 1024 * 1024:
        largest = max(sizes, key=lambda path: sizes[path])
        raise ConfigError(
            f"{place}: {source} is copied into the run directory and holds more than {MOST_MIB} MiB "
            f"(the largest file is {largest.relative_to(source)}): {way_out}"
        )


def _differs(place: str, source: Path, run_dir: Path, before: CodeFiles, *, accept_changed: bool) -> bool:
    """Whether the copy must be replaced, which must have been accepted. Raises ConfigError."""
    if not source.is_dir():
        log.info("algorithm_path_is_gone", path=str(source), used=str(RunPaths(run_dir).code))
        source = RunPaths(run_dir).code
    now = read_files(source)
    if now.digest == before.digest and read_files(RunPaths(run_dir).code).digest == before.digest:
        return False
    if not accept_changed:
        names = now.changed(before) or read_files(RunPaths(run_dir).code).changed(before)
        raise ConfigError(
            f"{place}: {source} is no longer the code that the run trains with ({now.digest[:12]}, was "
            f"{before.digest[:12]}; {in_words(names)}): restore it, or resume with --accept-changed-code"
        )
    return True
