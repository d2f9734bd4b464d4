"""Takes GPUs that no other container of this machine has, and becomes the given command on them.

    gpus.py --count 1 --locks /runs/.gpus -- python -P -m headrace.services.rollout --config ...

Every replica of a service is given the same list of devices by Compose. A GPU is taken by a lock on a file named by its
UUID, which the command inherits: the kernel frees it when the last process of the container has ended, however it ends.
"""

import argparse
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_LIST = ("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")
_LIST_S = 60.0
_PAUSE_S = 0.5


def seen() -> list[str]:
    """UUIDs of the GPUs that this container was given; none without the driver's tool."""
    try:
        listed = subprocess.run(_LIST, capture_output=True, text=True, timeout=_LIST_S, check=False)
    except FileNotFoundError:
        return []
    return listed.stdout.split() if listed.returncode == 0 else []


def take(uuids: Sequence[str], count: int, locks: Path) -> tuple[str, ...]:
    """`count` of the GPUs, or none; open, inheritable files hold the locks on those taken."""
    locks.mkdir(parents=True, exist_ok=True)
    held: list[tuple[str, int]] = []
    for uuid in uuids:
        if len(held) == count:
            break
        file = os.open(locks / uuid, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
        else:
            held.append((uuid, file))
    if len(held) < count:
        for _, file in held:
            os.close(file)
        return ()
    for _, file in held:
        os.set_inheritable(file, True)
    return tuple(uuid for uuid, _ in held)


def wait_and_take(uuids: Sequence[str], count: int, locks: Path, wait_s: float) -> tuple[str, ...]:
    """As `take`, again and again for so many seconds: a replica that has just ended may still hold its own."""
    end = time.monotonic() + wait_s
    while True:
        taken = take(uuids, count, locks)
        if taken or time.monotonic() > end:
            return taken
        time.sleep(_PAUSE_S)


def main(arguments: Sequence[str]) -> None:
    """Becomes the command, with CUDA_VISIBLE_DEVICES set; exits with status 2 where there are not enough GPUs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--locks", type=Path, required=True)
    parser.add_argument("--wait", type=float, default=30.0, help="seconds")
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args(arguments)
    uuids = seen()
    if len(uuids) < asked.count:
        sys.stderr.write(f"{asked.count} GPUs are needed, {len(uuids)} are seen by nvidia-smi\n")
        sys.exit(2)
    taken = wait_and_take(uuids, asked.count, asked.locks, asked.wait)
    if not taken:
        sys.stderr.write(
            f"of the {len(uuids)} GPUs of this service fewer than {asked.count} are free: other replicas have them; "
            "give it more (GPUS in .env, or its list in deploy/compose/gpus.yml), or scale down\n"
        )
        sys.exit(2)
    # Numbers, in the order in which nvidia-smi lists them: not every library reads UUIDs.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(uuids.index(uuid)) for uuid in taken)
    os.execvp(asked.command[0], asked.command)


if __name__ == "__main__":
    main(sys.argv[1:])
