"""A trainer of two ranks: FSDP2 shards become one snapshot on rank 0, and travel on from there."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from headrace.wire.weights import CollectiveGroup, allocate, bucket_digest, make_snapshot, open_store
from tests.integration.trainer.gather_rank import BUCKET
from tests.unit.services.trainer.builders import tiny_model


@contextmanager
def started(folder: Path, ranks: int, port: int, late: int = -1) -> Iterator[list[subprocess.Popen[str]]]:
    """Ranks that have ended when the block has."""
    processes = start(folder, ranks, port, late)
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=10)


def start(folder: Path, ranks: int, port: int, late: int) -> list[subprocess.Popen[str]]:
    arguments = [str(folder / "store"), str(port), str(late), "bfloat16"]
    # Torch's elastic launcher sets it; without the setting rank 0's own store would never listen.
    environment = os.environ | {"TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tests.integration.trainer.gather_rank", str(rank), str(ranks), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(ranks)
    ]


def test_shards_become_one_snapshot_and_arrive_whole(tmp_path: Path) -> None:
    expected = make_snapshot(tiny_model().named_parameters(), dtype=torch.bfloat16, bucket_bytes=BUCKET)
    _store, port = open_store("127.0.0.1")
    with started(tmp_path, 2, port) as processes:
        assert processes[0].stdout is not None
        if processes[0].stdout.readline() != "ready\n":
            raise AssertionError("".join(one.communicate(timeout=120)[1][-3000:] for one in processes))
        group = CollectiveGroup.join("g", "gloo", "127.0.0.1", port, 1, 2, 20.0)
        buckets = allocate(expected.plan, "cpu")
        for bucket in buckets:
            group.broadcast(bucket, 20.0)
        group.abort()
        found = [process.communicate(timeout=60) for process in processes]
        assert [process.returncode for process in processes] == [0, 0], [errors[-2000:] for _, errors in found]
    assert found[0][0].strip() == expected.plan.weights_digest
    assert len(buckets) > 1
    assert [bucket_digest(bucket) for bucket in buckets] == [bucket.digest for bucket in expected.plan.buckets]


def test_a_rank_that_never_joins_is_reported_at_the_deadline(tmp_path: Path) -> None:
    _store, port = open_store("127.0.0.1")
    with started(tmp_path, 2, port, late=1) as processes:
        assert processes[0].stderr is not None
        assert "gathers\n" in processes[0].stderr
        _, errors = processes[0].communicate(timeout=120)
        assert processes[0].returncode == 1
        # The second is what gloo calls the end of a wait that began after the one that ran out.
        assert re.search(r"TransientError: the gather of .*(Timed out waiting 3000ms|Application timeout)", errors), (
            errors
        )
        assert processes[1].poll() is None, "it ended with the late one"
