"""Weights from the trainer into memory beside the running ones. Blocking calls, for a worker thread."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from services.rollout.engines.protocol import Routes
from wire.errors import ContractError
from wire.v1 import common_pb2, rollout_pb2
from wire.weights import CollectiveGroup, allocate, bucket_digest, device_names, load_weights, nccl_version, tensors_of


class Receiver:
    """Keeps the collective group and the buffers from one version to the next."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._group: CollectiveGroup | None = None
        self._buffers: tuple[str, list[Tensor]] = ("", [])
        self._hasher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hash-weights")
        self._busy = threading.Lock()
        """One transfer at a time: a later one waits until the former has seen that it was broken off."""

    @property
    def routes(self) -> Routes:
        """How weights can come here."""
        if self._device.type != "cuda":
            return Routes(backends=("gloo",))
        return Routes(backends=("nccl", "gloo"), nccl_version=nccl_version(), devices=device_names(self._device))

    def receive(
        self, plan: common_pb2.WeightPlan, request: rollout_pb2.ReceiveWeightsRequest, timeout_s: float
    ) -> tuple[list[Tensor], list[str]]:
        """The plan's buckets from the source that `request` names, and their digests.

        The buckets are overwritten by the next call. Raises TransientError or ContractError.
        """
        end = time.monotonic() + timeout_s
        group, stale = self._group, request.collective.name
        if group is not None and group.name != stale:
            group.abort()
        with self._busy:
            match request.WhichOneof("source"):
                case "collective":
                    return self._from_group(plan, request.collective, end)
                case "disk_path":
                    return self._from_disk(plan, Path(request.disk_path))
                case _:
                    raise ContractError("bad_source", "ReceiveWeights names neither a collective group nor a folder")

    def _from_group(
        self, plan: common_pb2.WeightPlan, source: rollout_pb2.CollectiveGroup, end: float
    ) -> tuple[list[Tensor], list[str]]:
        buckets = self._allocate(plan, self._device if source.backend == "nccl" else torch.device("cpu"))
        group = self._join(source, end)
        digests: list[Future[str]] = []
        try:
            for bucket in buckets:
                group.broadcast(bucket, _left(end))
                # Beside the next bucket's way.
                digests.append(self._hasher.submit(bucket_digest, bucket))
            return buckets, [digest.result() for digest in digests]
        except BaseException:
            group.abort()
            raise

    def _join(self, source: rollout_pb2.CollectiveGroup, end: float) -> CollectiveGroup:
        if self._group is None or self._group.name != source.name or self._group.aborted:
            self._group = CollectiveGroup.join(
                source.name,
                source.backend,
                source.store_host,
                source.store_port,
                source.rank,
                source.world_size,
                _left(end),
            )
        return self._group

    def _from_disk(self, plan: common_pb2.WeightPlan, folder: Path) -> tuple[list[Tensor], list[str]]:
        saved = load_weights(folder)
        buckets = self._allocate(plan, torch.device("cpu"))
        for name, place in tensors_of(plan, buckets):
            tensor = saved.get(name)
            if tensor is None or tensor.shape != place.shape or tensor.dtype != place.dtype:
                raise ContractError("bad_weights", f"{folder} does not hold {name} as the plan has it")
            place.copy_(tensor)
        return buckets, [bucket_digest(bucket) for bucket in buckets]

    def _allocate(self, plan: common_pb2.WeightPlan, device: torch.device) -> list[Tensor]:
        """The buffers of last time, if they fit: fresh memory costs as much as the copy itself."""
        layout = f"{device} {[bucket.size_bytes for bucket in plan.buckets]}"
        if self._buffers[0] != layout:
            self._buffers = ("", [])
            self._buffers = (layout, allocate(plan, device))
        return self._buffers[1]


def _left(end: float) -> float:
    return max(end - time.monotonic(), 0.001)
