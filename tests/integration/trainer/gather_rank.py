"""One rank of a sharded trainer: gathers a snapshot; rank 0 sends it over a group to one receiver."""

import datetime
import os
import sys
import time
from contextlib import suppress

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from headrace.wire.weights import CollectiveGroup, join_snapshot, make_snapshot
from tests.unit.services.trainer.builders import tiny_model

BUCKET = 4096
SHORT, LONG = datetime.timedelta(seconds=3), datetime.timedelta(seconds=60)
"""Where nobody is late the limit must outlast slow imports on a busy machine."""


def main(rank: int, ranks: int, store: str, port: int, late: int, dtype: torch.dtype) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=LONG)
    model = tiny_model()
    mesh = init_device_mesh("cpu", (ranks,))
    if late >= 0:
        dist.distributed_c10d._set_pg_timeout(SHORT, mesh.get_group())
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if rank == late:
        time.sleep(600)
    if rank:
        join_snapshot(model.named_parameters(), dtype=dtype, bucket_bytes=BUCKET)
    else:
        send(model, port, dtype)
    # All at once and at once: gloo's threads abort a process that tears its groups down while peers leave. Who comes
    # through the second barrier first ends: the others may see that as an error, and all were at the end by then.
    dist.barrier()
    with suppress(RuntimeError):
        dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def send(model: nn.Module, port: int, dtype: torch.dtype) -> None:
    sys.stderr.write("gathers\n")
    sys.stderr.flush()
    snapshot = make_snapshot(model.named_parameters(), dtype=dtype, bucket_bytes=BUCKET)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    group = CollectiveGroup.join("g", "gloo", "127.0.0.1", port, 0, 2, 20.0)
    for bucket in snapshot.buckets:
        group.broadcast(bucket, 20.0)
    group.abort()
    sys.stdout.write(snapshot.plan.weights_digest + "\n")


if __name__ == "__main__":
    rank, ranks, store, port, late, dtype = sys.argv[1:]
    main(int(rank), int(ranks), store, int(port), int(late), getattr(torch, dtype))
