"""Metrics and log of a checkpoint being written, and the disk space that checkpoints still need."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.services.trainer import metrics
from headrace.services.trainer.durability.checkpoint import CheckpointStore
from headrace.wire.telemetry.logs import get_logger

log = get_logger("trainer.checkpoint")


@contextmanager
def checkpointing(store: CheckpointStore, *, step: int, limit_s: float) -> Iterator[None]:
    """Wraps writing a checkpoint; one that takes more than `limit_s` seconds is logged."""
    begin = time.monotonic()
    show_room(store, writing=True)
    try:
        with metrics.CHECKPOINT_SECONDS.time():
            yield
    finally:
        show_room(store)
    if (seconds := time.monotonic() - begin) > limit_s:
        log.warning("checkpoint_late", step=step, seconds=round(seconds, 1), checkpoint_deadline_s=limit_s)


def show_room(store: CheckpointStore, *, writing: bool = False) -> None:
    """Updates the gauge; `writing`: one is being written, whose bytes are already missing from the free ones."""
    published = store.published()
    newest = _size(published[-1][1]) if published else 0
    metrics.CHECKPOINT_ROOM.set(room_bytes(newest, have=len(published), keep=store.keep, writing=writing))


def room_bytes(newest: int, *, have: int, keep: int, writing: bool) -> int:
    """Free bytes needed to go on keeping checkpoints of `newest` bytes; pure.

    Room for those still missing of the `keep`, for one written aside before the oldest is removed, and one to spare.
    """
    missing = max(keep - have, 0)
    return newest * (missing + 2 - writing)


def _size(folder: Path) -> int:
    """Bytes of the folder's files; 0 if it is removed meanwhile."""
    try:
        return sum(path.stat().st_size for path in folder.iterdir())
    except FileNotFoundError:
        return 0
