"""Weights from the trainer into memory beside the running ones. Blocking calls, for a worker thread."""

import time
from pathlib import Path

import torch
from torch import Tensor

from wire.errors import ContractError
from wire.v1 import common_pb2, rollout_pb2
from wire.weights import CollectiveGroup, allocate, load_weights, tensors_of


def receive(
    plan: common_pb2.WeightPlan, request: rollout_pb2.ReceiveWeightsRequest, device: torch.device, timeout_s: float
) -> list[Tensor]:
    """The plan's buckets from the source that `request` names; raises TransientError or ContractError."""
    match request.WhichOneof("source"):
        case "collective":
            return _from_group(plan, request.collective, device, timeout_s)
        case "disk_path":
            return _from_disk(plan, Path(request.disk_path))
        case _:
            raise ContractError("bad_source", "ReceiveWeights names neither a collective group nor a folder")


def _from_group(
    plan: common_pb2.WeightPlan, source: rollout_pb2.CollectiveGroup, device: torch.device, timeout_s: float
) -> list[Tensor]:
    deadline = time.monotonic() + timeout_s
    # Both ends choose by their device when the coordinator names none. gloo moves host memory, NCCL the device's.
    backend = source.backend or ("nccl" if device.type == "cuda" else "gloo")
    buckets = allocate(plan, device if backend == "nccl" else "cpu")
    group = CollectiveGroup.join(
        source.name, backend, source.store_host, source.store_port, source.rank, source.world_size, timeout_s
    )
    try:
        for bucket in buckets:
            group.broadcast(bucket, max(deadline - time.monotonic(), 0.001))
    finally:
        group.abort()
    return buckets


def _from_disk(plan: common_pb2.WeightPlan, folder: Path) -> list[Tensor]:
    saved = load_weights(folder)
    buckets = allocate(plan, "cpu")
    for name, place in tensors_of(plan, buckets):
        tensor = saved.get(name)
        if tensor is None or tensor.shape != place.shape or tensor.dtype != place.dtype:
            raise ContractError("bad_weights", f"{folder} does not hold {name} as the plan has it")
        place.copy_(tensor)
    return buckets
