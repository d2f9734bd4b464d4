"""A collective group as publications use it, two processes on one device.

    python -P -m headrace.selfcheck.groups CASE --backend nccl|gloo --on cuda|cpu

- `bytes`: three buckets arrive bit for bit.
- `sglang`: the same, and the receiver joins and receives by the calls of torch that SGLang uses.
- `kill`: the receiver dies before the second bucket; the sender gets an error in time and is alive `--linger` seconds
  later (torch's watchdog would end it after 60).
- `freeze`: the receiver stands still; work on the sender's default stream goes on meanwhile.
- `two`: of two receivers one stands still; the other gets its weights in time.

Two NCCL ranks on one GPU have a host id each: NCCL then sees two machines, and takes sockets.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NoReturn

import torch
from torch import Tensor

from headrace.selfcheck.probe import device_of, end, parser, synchronize
from headrace.supervisor.once import python
from headrace.wire.contracts.digests import XXH3
from headrace.wire.errors import TransientError
from headrace.wire.process.environment import keep_out
from headrace.wire.process.lifecycle import die_with_parent
from headrace.wire.weights import CollectiveGroup, GroupStore, bucket_digest, open_store, side_stream
from headrace.wire.weights.store import listening_store

CASES = ("bytes", "sglang", "kill", "freeze", "two")
_HOST, _BUCKETS, _JOIN_S = "127.0.0.1", 3, 60.0
_STANDS_STILL_S = 3.0
"""How long the work on the default stream is measured, before and while a receiver stands still."""


@dataclass
class CollectiveProbe:
    """The sender's end of a group, and the receiving process."""

    group: CollectiveGroup
    store: GroupStore
    child: "subprocess.Popen[str]"
    seconds: float = 0.0
    error: str = ""
    sender: threading.Thread | None = field(default=None, repr=False)

    stream: "torch.cuda.Stream | None" = None
    """The link's own, as the trainer's links have: ProcessGroupNCCL lets the stream that is current at a broadcast wait
    for the broadcast's end (`synchronizeStream`), and on the default stream that is training and every other link."""

    def send(self, buckets: list[Tensor], limit_s: float) -> None:
        """Broadcasts the buckets; records error and seconds. `begin` runs it in a thread, as the trainer does."""
        began = time.monotonic()
        try:
            with torch.cuda.stream(self.stream):
                for bucket in buckets:
                    self.group.broadcast(bucket, limit_s)
                    self.store.seal()  # As the trainer does: what follows shows that the members need no store.
        except TransientError as error:
            self.error = str(error)
        self.seconds = time.monotonic() - began

    def begin(self, buckets: list[Tensor], limit_s: float) -> None:
        """Starts `send` in a thread and returns."""
        self.sender = threading.Thread(target=self.send, args=(buckets, limit_s), daemon=True)
        self.sender.start()

    def over(self) -> None:
        """Waits for the thread, and ends the receiver."""
        if self.sender is not None:
            self.sender.join()
        self.child.kill()
        self.child.wait()


def main() -> int:
    """Runs the sender of a case, or with `--role receive` its receiver."""
    made = parser(__doc__ or "")
    made.add_argument("case", choices=CASES)
    made.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    made.add_argument("--mib", type=int, default=64)
    made.add_argument("--limit", type=float, default=15.0)
    made.add_argument("--linger", type=float, default=80.0)
    made.add_argument("--role", default="send")
    made.add_argument("--act", default="receive")
    made.add_argument("--port", type=int, default=0)
    options = made.parse_args()
    os.environ["NCCL_HOSTID"] = f"{options.role}-{os.getpid()}"
    keep_out()
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    if options.role == "receive":
        return _receive_as_sglang(options) if options.act == "sglang" else _receive(options)
    return _PLAY[options.case](options)


def _place(options: argparse.Namespace) -> torch.device:
    """Device of the buckets: gloo's are in host memory."""
    return device_of(options.on) if options.backend == "nccl" else torch.device("cpu")


def _buckets(options: argparse.Namespace) -> list[Tensor]:
    size, device = options.mib << 20, _place(options)
    buckets = [torch.randint(0, 256, (size,), dtype=torch.uint8, device=device) for _ in range(_BUCKETS)]
    synchronize(device)  # The links' streams do not wait for the one that filled them.
    return buckets


def _digests(buckets: list[Tensor]) -> list[str]:
    """By one algorithm: sender and receiver may have them in different memory, each with a default of its own."""
    return [bucket_digest(bucket, XXH3) for bucket in buckets]


def _link(options: argparse.Namespace, act: str) -> CollectiveProbe:
    store, port = open_store(_HOST)
    words = ("--role", "receive", "--port", str(port), "--act", act, "--backend", options.backend)
    argv = python("headrace.selfcheck.groups", options.case, *words, "--mib", str(options.mib), "--on", options.on)
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    group = CollectiveGroup.join("g", options.backend, _HOST, port, 0, 2, _JOIN_S)
    return CollectiveProbe(group, store, child, stream=side_stream(_place(options)))


def _bytes(options: argparse.Namespace) -> int:
    buckets = _buckets(options)
    link = _link(options, "sglang" if options.case == "sglang" else "receive")
    link.send(buckets[:1], options.limit)
    first = link.seconds  # The members connect in their first collective.
    if not link.error:
        link.send(buckets[1:], options.limit)
    out = link.child.communicate(timeout=_JOIN_S)[0].strip().splitlines() if not link.error else []
    equal = bool(out) and json.loads(out[-1]) == _digests(buckets)
    rate = round((_BUCKETS - 1) * (options.mib << 20) / max(link.seconds, 1e-9) / 1e9, 2)
    said = f"equal, {rate} GB/s after a first bucket of {first:.1f} s" if equal else "other bytes arrived"
    end(ok=equal, said=link.error or said, gb_per_s=rate, first_s=round(first, 2))
    _leave(link)


def _kill(options: argparse.Namespace) -> int:
    link = _link(options, "kill")
    link.send(_buckets(options), options.limit)
    in_time = bool(link.error) and link.seconds < 2 * options.limit
    time.sleep(options.linger)
    said = f"an error after {link.seconds:.1f} s, alive {options.linger:g} s later" if in_time else "no error in time"
    end(ok=in_time, said=said, error=link.error[:200])
    _leave(link)


def _connected(options: argparse.Namespace, buckets: list[Tensor], *acts: str) -> list[CollectiveProbe]:
    """Links that have sent their first bucket, in which NCCL's members connect: that takes seconds.

    Where one cannot, the result is written and the process ends.
    """
    links = [_link(options, act) for act in acts]
    for link in links:
        link.send(buckets[:1], _JOIN_S)
        if link.error:
            end(ok=False, said=f"before one stood still: {link.error}")
            _leave(*links)
    return links


def _freeze(options: argparse.Namespace) -> int:
    """Checks the rate of the default stream on a GPU only: on a CPU the cores are shared."""
    device = device_of(options.on)
    buckets = _buckets(options)
    (link,) = _connected(options, buckets, "freeze")
    before = _rate(device, _STANDS_STILL_S)
    link.begin(buckets[1:], options.limit)
    during = _rate(device, _STANDS_STILL_S)
    link.over()
    goes_on = device.type == "cpu" or during > 0.8 * before
    said = f"{during:.1f} steps a second while it stood still, {before:.1f} before"
    end(ok=bool(link.error) and goes_on, said=said if link.error else "the frozen receiver was not noticed")
    _leave(link)


def _two(options: argparse.Namespace) -> int:
    buckets = _buckets(options)
    frozen, good = _connected(options, buckets, "freeze", "receive")
    frozen.begin(buckets[1:], options.limit)
    good.begin(buckets[1:], options.limit)
    assert good.sender is not None
    good.sender.join()
    in_time = not good.error and good.seconds < options.limit / 5
    for link in (frozen, good):
        link.over()
    said = good.error or f"the other had its weights after {good.seconds:.2f} s"
    end(ok=in_time and bool(frozen.error), said=said)
    _leave(frozen, good)


_PLAY = {"bytes": _bytes, "sglang": _bytes, "kill": _kill, "freeze": _freeze, "two": _two}


def _leave(*links: CollectiveProbe) -> NoReturn:
    """Exits without torch's own clean-up, which may wait for members that are gone."""
    for link in links:
        link.child.kill()
    sys.stdout.flush()
    os._exit(0)


def _rate(device: torch.device, seconds: float) -> float:
    """Steps per second of a stand-in for training: products on the default stream, and a number read back."""
    size = 2048 if device.type == "cuda" else 256
    square = torch.randn(size, size, device=device)
    steps, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        product = square @ square
        for _ in range(3):
            product = square @ square
        float(product[0, 0])
        steps += 1
    return steps / seconds


def _receive(options: argparse.Namespace) -> int:
    group = CollectiveGroup.join("g", options.backend, _HOST, options.port, 1, 2, _JOIN_S)
    found: list[Tensor] = []
    for number in range(_BUCKETS):
        if number == 1 and options.act in ("kill", "freeze"):
            os.kill(os.getpid(), signal.SIGKILL if options.act == "kill" else signal.SIGSTOP)
        bucket = torch.zeros(options.mib << 20, dtype=torch.uint8, device=_place(options))
        group.broadcast(bucket, _JOIN_S)
        found.append(bucket)
    sys.stdout.write(json.dumps(_digests(found)) + "\n")
    sys.stdout.flush()
    os._exit(0)


def _receive_as_sglang(options: argparse.Namespace) -> int:
    """Receives by the calls of `init_custom_process_group` (sglang/srt/utils/common.py) and of its weight updater."""
    from torch import distributed as dist
    from torch.distributed import distributed_c10d as c10d
    from torch.distributed.rendezvous import rendezvous

    limit = timedelta(seconds=_JOIN_S)
    own = listening_store(_HOST, timeout_s=_JOIN_S)
    dist.init_process_group(options.backend, store=own, rank=0, world_size=1, timeout=limit)
    store, rank, world_size = next(rendezvous(f"tcp://{_HOST}:{options.port}", 1, 2, timeout=limit))
    store.set_timeout(limit)
    group, _ = c10d._new_process_group_helper(
        world_size,
        rank,
        [],
        c10d.Backend(options.backend),
        c10d.PrefixStore("g", store),
        group_name=c10d.GroupName("g"),
        backend_options=None,
        timeout=limit,
        device_id=None,
    )
    c10d._world.pg_group_ranks[group] = {index: index for index in range(2)}
    found: list[Tensor] = []
    for _ in range(_BUCKETS):
        # With gloo, too, SGLang's buckets are on its device.
        bucket = torch.empty(options.mib << 20, dtype=torch.uint8, device=device_of(options.on))
        dist.broadcast(bucket, src=0, group=group)
        found.append(bucket)
    sys.stdout.write(json.dumps(_digests(found)) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
