"""The run directory: checks whether it may be used, and moves prepared files into it."""

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.config.resolve import STALE_BEFORE, at_home
from headrace.config.schema import RunFile
from headrace.services.orchestrator.settings import EvalTable, eval_sets
from headrace.services.trainer.config.algorithm import AlgorithmTable
from headrace.wire.config.kept import flatten, kept_tables
from headrace.wire.errors import ConfigError
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths, entries

TRACES = tuple(dict.fromkeys(entry.top for entry in entries() if not entry.before))
"""Entries that a run leaves behind once it has begun."""
PREPARED = tuple(dict.fromkeys(entry.top for entry in entries() if entry.before))
"""Entries that may exist before a run begins."""
NUMBERS = ("model.dtype", "model.fp32_head")
"""Keys that affect what replayed steps and engines compute: a resumed run must keep them."""
LOCKED = ("run.id", "run.stage", "run.seed", "run.max_staleness", "run.stale", "batch", "data", *NUMBERS)
"""`NUMBERS`, and keys that decide the numbers of prompts, and which rollouts are trained."""
_SINCE = {"model.fp32_head": False, "run.stale": STALE_BEFORE, "data.max_unknown_share": 0.05}
"""Keys that run directories of earlier versions lack -> the behaviour of their runs."""


def check_name(run_dir: Path) -> None:
    """Raises ConfigError for a path that the broker's address or a library of the run cannot hold."""
    text = str(run_dir)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"the run directory {text!r} is no valid UTF-8: rename the folder, or give another") from None
    if any(ord(one) < 32 or ord(one) == 127 for one in text):
        raise ConfigError(
            f"the run directory {text!r} has a line break or another control character in its path: rename the "
            "folder, or give another"
        )


def check_fresh(run_dir: Path) -> None:
    """Raises ConfigError if a new run may not begin here."""
    check_name(run_dir)
    if run_dir.exists() and not run_dir.is_dir():
        raise ConfigError(f"the run directory {run_dir} is a file")
    names = {path.name for path in run_dir.iterdir()} if run_dir.is_dir() else set()
    if has_begun(run_dir):
        raise ConfigError(
            f"{run_dir} already holds a run: continue it with --resume, or choose another folder with --run-dir"
        )
    known = {*PREPARED, *TRACES}
    foreign = sorted(name for name in names.difference(known) if not name.startswith(atomic.ASIDE))
    if foreign:
        raise ConfigError(f"{run_dir} is not empty ({foreign[0]}): choose another folder with --run-dir")


def check_resumable(run_dir: Path, config: RunFile, locked: Sequence[str] = LOCKED) -> None:
    """Raises ConfigError if there is no run, or if the config changes a `locked` key, which makes it another run."""
    check_name(run_dir)
    file = RunPaths(run_dir).run_toml
    try:
        old = at_home(kept_tables(run_dir), run_dir)
    except ConfigError:
        raise ConfigError(f"there is no run to resume in {run_dir} ({file} cannot be read)") from None
    before, now = _SINCE | dict(flatten(old)), dict(flatten(config.model_dump(mode="json", serialize_as_any=True)))
    for key in sorted(before.keys() | now.keys()):
        is_locked = any(f"{key}.".startswith(f"{name}.") for name in locked)
        if is_locked and before.get(key) != now.get(key):
            raise ConfigError(
                f"{key} was {before.get(key)!r} in {file} and is now {now.get(key)!r}: "
                "a resumed run keeps it; start a new run in another --run-dir"
            )
    _check_sets(old, config, file)
    _check_baselines(old, config, file)


def _check_sets(old: dict[str, object], config: RunFile, file: Path) -> None:
    """Raises ConfigError if the config would evaluate other prompts than those that were prepared."""
    before, now = ([_rows_of(one) for one in sets] for sets in (eval_sets(old.get("eval", {})), config.eval))
    if before != now:
        raise ConfigError(
            f"eval was {before} in {file} and is now {now}: a resumed run keeps the names, prompts and order of its "
            "evaluation sets (every, k, scorers and sampling may change); start a new run in another --run-dir"
        )


def _rows_of(one: EvalTable) -> dict[str, object]:
    return one.model_dump(include={"name", "path", "split", "columns"}, exclude_defaults=True)


def _check_baselines(old: dict[str, object], config: RunFile, file: Path) -> None:
    """Raises ConfigError if the algorithms differ in the greedy rollout, which existing groups have or lack."""
    before = AlgorithmTable.model_validate(old.get("algorithm", {}))
    if before.greedy_last != config.algorithm.greedy_last:
        raise ConfigError(
            f"algorithm was {before.name!r} in {file} and is now {config.algorithm.name!r}: one of them asks for a "
            "greedy rollout of each prompt, and the groups made so far are of the other kind; take a new "
            "--run-dir"
        )


def absent_folders(run_dir: Path) -> list[Path]:
    """The run directory and its parents that do not exist, innermost first: a failed start must remove them."""
    return [path for path in (run_dir, *run_dir.parents) if not path.exists()]


def make_private(absent: Sequence[Path]) -> None:
    """Makes a run directory that is not there yet, for its owner alone: prompts, config and logs are in it.

    Raises ConfigError if it cannot be made.
    """
    if not absent:
        return
    try:
        absent[0].parent.mkdir(parents=True, exist_ok=True)
        absent[0].mkdir(mode=0o700)
    except OSError as error:
        reason = f"{error.filename or absent[0]}: {error.strerror}"
        raise ConfigError(f"cannot make {absent[0]} ({reason}); choose another --run-dir") from error


def let_group_read(run_dir: Path) -> None:
    """Lets the group of this process read the run directory: services may have users of their own.

    Raises ConfigError.
    """
    found = run_dir.stat()
    if found.st_mode & 0o005 == 0o005 or (found.st_gid == os.getegid() and found.st_mode & 0o050 == 0o050):
        return
    try:
        os.chown(run_dir, -1, os.getegid())
        run_dir.chmod(stat.S_IMODE(found.st_mode) | 0o050)
    except OSError as error:
        raise ConfigError(f"{run_dir} cannot be made readable to its group ({error.strerror}): chmod g+rx it") from None


def make_event_folders(run_dir: Path, services: Sequence[str], groups: Mapping[str, int]) -> None:
    """Makes `events/SERVICE/` of each service, and what is below, writable by its group, if it has one of its own.

    Raises ConfigError for a group that this process is not a member of.
    """
    run = RunPaths(run_dir)
    below = [("environment", run.played_ids)] if "environment" in services else []
    for service, folder in (*((service, run.own_events(service)) for service in services), *below):
        folder.mkdir(parents=True, exist_ok=True)
        if service not in groups:
            continue
        try:
            os.chown(folder, -1, groups[service])
            folder.chmod(0o775)
        except OSError as error:
            raise ConfigError(
                f"{folder} cannot be given to group {groups[service]} ({error.strerror}): only its owner can, and as a "
                "member of the group"
            ) from None


def take_away(absent: Sequence[Path]) -> None:
    """Removes the run directory of a failed start, and the empty folders above it; the caller holds its lock.

    The lock's file goes last, and after it only what is empty: from then on the folder may be another start's.
    """
    if not absent:
        return
    lock = RunPaths(absent[0]).supervisor
    for path in (*_entries(lock.parent), *_entries(absent[0])):
        if path not in (lock, lock.parent):
            _remove(path)
    _remove(lock)
    for folder in (lock.parent, *absent):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        path.unlink()


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def stage(run_dir: Path) -> Path:
    """Makes an empty stage folder inside the run directory, for files being prepared."""
    folder = RunPaths(run_dir).staging
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def drop_stage(run_dir: Path) -> None:
    """Removes an unfinished stage."""
    shutil.rmtree(RunPaths(run_dir).staging, ignore_errors=True)


def publish(run_dir: Path, folder: Path) -> None:
    """Moves each file of the stage to its place; other files stay, as services may be reading them."""
    for path in sorted(folder.rglob("*")):
        target = run_dir / path.relative_to(folder)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            atomic.move(path, target, durable=True)
    shutil.rmtree(folder)


def has_begun(run_dir: Path) -> bool:
    """Whether a run has begun here; otherwise it was prepared at most."""
    return any(_is_trace(run_dir / name) for name in TRACES)


def _is_trace(path: Path) -> bool:
    # `prepare` makes the folders of event logs: their owners cannot, where the run directory is read-only to them.
    if path == RunPaths(path.parent).events:
        return any(not inner.is_dir() for inner in path.rglob("*"))
    return path.exists()
