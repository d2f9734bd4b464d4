"""What the children of the tests run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np


def plain(add: int = 0) -> Callable[[dict[str, Any]], Any]:
    """Does as the job says."""

    def run(job: dict[str, Any]) -> Any:
        print("a user's words, which must not reach the frames")  # noqa: T201
        return ACTS[job["do"]](job, add)

    return run


def nap(job: dict[str, Any], _: int) -> dict[str, Any]:
    begin = time.monotonic()
    time.sleep(job["seconds"])
    return {"pid": os.getpid(), "from": begin, "to": time.monotonic()}


def work(job: dict[str, Any], _: int) -> dict[str, Any]:
    """Processor time, whatever the clock says meanwhile."""
    Path(job["file"]).touch()
    while time.process_time() < job["until"]:
        pass
    return {"pid": os.getpid()}


def leave_a_child(job: dict[str, Any], _: int) -> dict[str, Any]:
    # In a session of its own: as a server that users' code starts, it outlives the process group.
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    other = subprocess.Popen(command, start_new_session=job.get("apart", False))
    Path(job["file"]).write_text(str(other.pid))
    time.sleep(60)
    return {}


def eat(_: dict[str, Any], __: int) -> dict[str, Any]:
    return {"size": len(bytearray(4 << 30))}


def die(job: dict[str, Any], _: int) -> dict[str, Any]:
    os.kill(os.getpid(), getattr(signal, job["signal"]))
    return {}


ACTS: dict[str, Callable[[dict[str, Any], int], Any]] = {
    "add": lambda job, add: {"sum": job["a"] + add, "pid": os.getpid()},
    "echo": lambda job, _: {"said": job["what"]},
    "nan": lambda _, __: {"value": float("nan"), "other": float("inf")},
    "numpy": lambda _, __: {"value": np.float32(0.5), "count": np.int64(3), "flag": np.bool_(True)},
    "decimal": lambda _, __: {"value": Decimal("1.5")},
    "array": lambda _, __: {"value": np.zeros(3)},
    "number": lambda _, __: 3.0,
    "raise": lambda _, __: {}["absent"],
    "leave": lambda _, __: sys.exit(0),
    "nap": nap,
    "work": work,
    "leave_a_child": leave_a_child,
    "eat": eat,
    "die": die,
}


def broken() -> Callable[[dict[str, Any]], Any]:
    """Cannot load."""
    raise ValueError("the weights are missing")


def dies() -> Callable[[dict[str, Any]], Any]:
    """Dies while it loads."""
    os._exit(7)


def dies_later(flag: str) -> Callable[[dict[str, Any]], Any]:
    """Loads only while the file is absent."""
    if Path(flag).exists():
        raise ValueError("the second start fails")
    return plain()
