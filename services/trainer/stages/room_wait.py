"""Waiting for room on the disk before a batch is journaled: a step whose record cannot be written is not begun."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.services.trainer import metrics
from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.stages.batch_wait import WaitReport
from headrace.wire.errors import DiskError
from headrace.wire.host.disk_fault import free_bytes, in_bytes
from headrace.wire.telemetry.logs import get_logger

_LOOK_S = 0.5
MIB = 1024 * 1024
log = get_logger("trainer.room")


def wait_for_room(
    folder: Path,
    batch: Sequence[ReadyGroup],
    *,
    reserve_bytes: int,
    limit_s: float,
    given_up: Callable[[], bool],
    check: Callable[[], None],
    doing: WaitReport,
) -> bool:
    """Waits until the file system of `folder` has room for the batch and the reserve; False if `given_up()`.

    `check` raises what ends the trainer meanwhile. Raises DiskError after `limit_s` seconds. Without a reserve, and
    where free bytes cannot be looked at, it does not wait.
    """
    needed = sum(len(group.data) for group in batch) + reserve_bytes
    metrics.STEP_ROOM.set(needed if reserve_bytes else 0)
    begin, said = time.monotonic(), False
    while reserve_bytes and (free := free_bytes(folder)) is not None and free < needed:
        if given_up():
            return False
        check()
        left = begin + limit_s - time.monotonic()
        facts = f"{in_bytes(free)} free, {in_bytes(needed)} needed"
        if left <= 0:
            raise DiskError(
                f"{folder}: no room for the next step for {limit_s:g} s ({facts}); make room there, then continue with "
                "--resume, or lower trainer.disk_reserve_mib"
            )
        doing(f"room on the disk of {folder}: {facts}", left)
        if not said:
            said = True
            log.warning("disk_low", folder=str(folder), free=free, needed=needed, effect="the run pauses")
        time.sleep(_LOOK_S)
    if said:
        doing("")
        log.info("disk_has_room", folder=str(folder), waited_s=round(time.monotonic() - begin, 1))
    return True
