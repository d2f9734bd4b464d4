"""What a checkpoint tells of itself while it is written, and the room on the disk that checkpoints still need."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.trainer import metrics
from services.trainer.checkpoint import CheckpointStore
from wire.telemetry import get_logger

log = get_logger("trainer.checkpoint")


@contextmanager
def checkpointing(store: CheckpointStore, *, step: int, limit_s: float) -> Iterator[None]:
    """Around the gathers and the writing of one. After `limit_s` seconds it counts as a time without a step."""
    begin = time.monotonic()
    show_room(store, writing=True)
    try:
        with metrics.CHECKPOINTING(limit_s):
            yield
    finally:
        show_room(store)
    if (seconds := time.monotonic() - begin) > limit_s:
        log.warning("checkpoint_late", step=step, seconds=round(seconds, 1), checkpoint_deadline_s=limit_s)


def show_room(store: CheckpointStore, *, writing: bool = False) -> None:
    """Refreshes the gauge; `writing`: one is being written, which takes its bytes off the free ones already."""
    published = store.published()
    newest = _size(published[-1][1]) if published else 0
    metrics.CHECKPOINT_ROOM.set(room_bytes(newest, have=len(published), keep=store.keep, writing=writing))


def room_bytes(newest: int, *, have: int, keep: int, writing: bool) -> int:
    """Bytes that must be free for checkpoints of `newest` bytes to go on being kept; pure.

    Those that are missing of the `keep`; one more, which is written aside before the oldest is removed; and one to
    spare.
    """
    missing = max(keep - have, 0)
    return newest * (missing + 2 - writing)


def _size(folder: Path) -> int:
    """Bytes of its files; 0 if it is removed meanwhile."""
    try:
        return sum(path.stat().st_size for path in folder.iterdir())
    except FileNotFoundError:
        return 0
