"""One of two ranks of a sharded trainer: `gather_rank STORE RANK`. Rank 0 gathers a snapshot, rank 1 never joins."""

import datetime
import sys
import time

import torch
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from headrace.wire.weights import make_snapshot
from tests.unit.services.trainer.builders import tiny_model

SHORT, LONG = datetime.timedelta(seconds=3), datetime.timedelta(seconds=60)
"""Limits: the gather's, and the start's, which must outlast slow imports on a busy machine."""


def main(store: str, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=LONG)
    model = tiny_model()
    mesh = init_device_mesh("cpu", (2,))
    dist.distributed_c10d._set_pg_timeout(SHORT, mesh.get_group())
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if rank:
        time.sleep(600)
    make_snapshot(model.named_parameters(), dtype=torch.bfloat16, bucket_bytes=4096)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
