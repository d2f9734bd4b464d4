"""The ranks of a trainer on one machine: the first one starts the others as its children, and they share its fate.

A child is the same command with its rank added. It dies with the first rank (on Linux at once, elsewhere by the next
collective's deadline), and the first rank ends when a child has died.
"""

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch._C._distributed_c10d import TCPStore

from services.trainer.ranks import Ranks
from wire.errors import TransientError
from wire.lifecycle import die_with_parent
from wire.telemetry import get_logger

_HOST = "127.0.0.1"
log = get_logger("trainer.crew")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a process stands, as its command line says."""

    rank: int = 0
    ranks: int = 1
    port: int = 0
    """Of the first rank's store; 0 for the first rank itself."""

    def arguments(self) -> list[str]:
        """What makes a command line one of this place."""
        return ["--rank", str(self.rank), "--ranks", str(self.ranks), "--rank-port", str(self.port)]


def read_place(arguments: Sequence[str]) -> Place:
    """The place that a command line names; that of the first rank, if none."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rank-port", type=int, default=0)
    found = parser.parse_known_args(list(arguments))[0]
    return Place(rank=found.rank, ranks=found.ranks, port=found.rank_port)


def rank_device(device: str, rank: int) -> torch.device:
    """One device a rank: those behind `device` (`cuda:2` is that of rank 0); the CPU is shared by all."""
    first = torch.device(device)
    return first if first.type == "cpu" else torch.device(first.type, (first.index or 0) + rank)


def assemble_ranks(size: int, place: Place, *, device: torch.device, timeout_s: float, grouped: bool = False) -> Ranks:
    """Makes this process one of `size` ranks; the first one starts the others. Call it in the main thread.

    No collective waits longer than `timeout_s`. `grouped`: even one rank alone gets a process group, which FSDP2 and
    DeepSpeed need. Raises TransientError when a rank does not come in time.
    """
    if size == 1 and not grouped:
        return Ranks.alone()
    limit = timedelta(seconds=timeout_s)
    try:
        if place.rank:
            store = TCPStore(_HOST, place.port, is_master=False, timeout=limit)
        else:
            store = TCPStore(_HOST, 0, is_master=True, wait_for_workers=False, timeout=limit)
            for rank in range(1, size):
                _start(Place(rank=rank, ranks=size, port=store.port))
    except RuntimeError as error:
        raise TransientError(f"rank {place.rank} found no store of rank 0 at port {place.port}: {error}") from error
    return Ranks.join(place.rank, size, store, device=device, timeout_s=timeout_s)


def _start(place: Place) -> None:
    command = [sys.executable, *sys.orig_argv[1:], *place.arguments()]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
    log.info("rank_started", rank=place.rank, pid=process.pid)
    threading.Thread(target=_watch, args=(place.rank, process), daemon=True, name=f"rank-{place.rank}").start()


def _watch(rank: int, process: "subprocess.Popen[bytes]") -> None:
    """Ends this process when the child fails: the collectives that wait for it would hold it until their deadline.

    With the child's own code, which says whether another try makes sense.
    """
    code = process.wait()
    if code:
        log.error("rank_lost", rank=rank, exit_code=code, effect="all ranks end")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if code > 0 else 1)
