"""The run directory of a start: made if it is not there, locked, and removed again by a start that fails."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headrace.config import run_dir as folders
from headrace.config.resolve import Resolved, settle
from headrace.model.hub import fetch_model
from headrace.supervisor.lock import RunLock


def settled_start(
    resolved: Resolved,
    run_dir: Path,
    *,
    goes_on: bool,
    environment: Mapping[str, str],
    locked: Sequence[str] = folders.LOCKED,
) -> Resolved:
    """The config as this run directory settles it, with its model downloaded. Raises ConfigError if they do not fit."""
    resolved = settle(resolved, run_dir, goes_on=goes_on)
    (folders.check_resumable(run_dir, resolved.config, locked) if goes_on else folders.check_fresh(run_dir))
    return fetch_model(resolved, run_dir, goes_on=goes_on, environment=environment)


@contextmanager
def locked_start(run_dir: Path, lock: RunLock | None = None) -> Iterator[tuple[RunLock, ExitStack]]:
    """Yields the lock, and a stack that releases it last: what else is to be closed at the run's end goes onto it.

    `lock`: the run directory's, if the caller holds it already. If the block raises, everything on the stack is
    closed, prepared files and a run directory that this start has made are removed, and only then the lock is released:
    a start that takes it next finds its own files in place. Raises ConfigError if another start holds it.
    """
    absent = folders.absent_folders(run_dir)
    folders.make_private(absent)
    taken = lock or RunLock(run_dir)
    held = ExitStack()
    held.callback(taken.release)
    undo = held.enter_context(ExitStack())
    try:
        yield taken, held
    except BaseException:
        undo.callback(folders.take_away, absent)
        undo.callback(folders.drop_stage, run_dir)
        held.close()
        raise
