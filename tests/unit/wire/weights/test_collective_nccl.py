"""What of NCCL's groups needs no GPU: how they are made, and that their first broadcast has a deadline."""

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import distributed as dist
from torch._C._distributed_c10d import HashStore

from headrace.wire.errors import TransientError
from headrace.wire.weights import CollectiveGroup
from headrace.wire.weights.collective import without_watchdog

NAME = "TORCH_NCCL_BLOCKING_WAIT"


@pytest.mark.parametrize("before", [None, "0"])
def test_every_group_is_made_without_a_watchdog_and_the_variable_is_as_before(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.delenv(NAME, raising=False)
    if before is not None:
        monkeypatch.setenv(NAME, before)
    together = threading.Barrier(16)

    def construct() -> tuple[str | None, str | None]:
        """As the real constructor: reads the variable now and then."""
        first = os.environ.get(NAME)
        time.sleep(0.01)
        return first, os.environ.get(NAME)

    def make(_: int) -> tuple[str | None, str | None]:
        together.wait(60)
        return without_watchdog(construct)

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(make, range(16))) == {("1", "1")}
    assert os.environ.get(NAME) == before


class Hangs:
    """A backend whose other member died after it had joined: `ncclCommInitRank` waits for it for ever."""

    def __init__(self, hangs: int) -> None:
        self._hangs = hangs
        self.calls = 0
        self.threads: set[int] = set()
        self.aborted = threading.Event()

    def broadcast(self, tensors: list[torch.Tensor], options: dist.BroadcastOptions) -> "Hangs":
        self.calls += 1
        self.threads.add(threading.get_ident())
        if self.calls == self._hangs:
            threading.Event().wait()
        tensors[0].fill_(7)
        return self

    def wait(self, _limit: object) -> bool:
        return True

    def abort(self) -> None:
        self.aborted.set()


def test_a_member_that_dies_before_the_first_bucket_costs_its_deadline_alone() -> None:
    backend = Hangs(hangs=1)
    left: list[Future[Any]] = []
    group = CollectiveGroup(backend, HashStore(), "g", connects=True, left_behind=left.append)  # type: ignore[arg-type]
    with pytest.raises(TransientError, match=r"the group g failed: a member did not connect in 0\.2 s"):
        group.broadcast(torch.zeros(4), 0.2)
    assert backend.aborted.is_set() and group.aborted
    # Its thread hangs for ever and is handed on: the owner of the group counts it.
    assert len(left) == 1 and not left[0].done()


def test_members_that_are_connected_are_sent_to_by_the_callers_thread() -> None:
    backend = Hangs(hangs=0)
    group = CollectiveGroup(backend, HashStore(), "g", connects=True)  # type: ignore[arg-type]
    bucket = torch.zeros(4)
    for _ in range(3):
        group.broadcast(bucket, 60.0)
    assert bucket.eq(7).all() and backend.calls == 3
    assert len(backend.threads) == 2 and threading.get_ident() in backend.threads
