"""Receives weights from the trainer into buffers beside the running weights. Blocking, for a worker thread."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from headrace.services.rollout.engines.protocol import Routes
from headrace.wire.errors import ContractError, TransientError
from headrace.wire.process.environment import nccl_cumem
from headrace.wire.v1 import common_pb2, rollout_pb2
from headrace.wire.weights import (
    CollectiveGroup,
    allocate,
    device_names,
    digest_as,
    load_weights,
    nccl_version,
    side_stream,
    tensors_of,
)

_LATE = "another transfer has begun"


class Receiver:
    """Receives weights; reuses the collective group and the buffers across versions."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = side_stream(device)
        self._group: CollectiveGroup | None = None
        self._buffers: tuple[str, list[Tensor]] = ("", [])
        self._hasher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hash-weights")
        self._turn = 0
        self._turns = threading.Lock()
        self._busy = threading.Lock()
        """Held by the transfer that fills the buffers; a later transfer waits until the earlier has stopped."""

    @property
    def routes(self) -> Routes:
        """Routes by which weights can be received."""
        if self._device.type != "cuda":
            return Routes(backends=("gloo",))
        return Routes(
            backends=("nccl", "gloo"),
            nccl_version=nccl_version(),
            nccl_cumem=nccl_cumem(),
            devices=device_names(self._device),
        )

    def receive(
        self, plan: common_pb2.WeightPlan, request: rollout_pb2.ReceiveWeightsRequest, timeout_s: float
    ) -> tuple[list[Tensor], list[str]]:
        """Receives the plan's buckets from the source in `request`; returns them with their digests.

        The next call cancels this one and overwrites the buckets. Raises TransientError or ContractError.
        """
        end = time.monotonic() + timeout_s
        with self._turns:
            self._turn = turn = self._turn + 1
            group = self._group
        if group is not None and group.name != request.collective.name:
            group.abort()
        match request.WhichOneof("source"):
            case "collective":
                group = self._join(request.collective, turn, end)
                with self._buffers_of(plan, self._place(request.collective.backend), turn, end) as buckets:
                    return self._from_group(plan, buckets, group, end)
            case "disk_path":
                with self._buffers_of(plan, torch.device("cpu"), turn, end) as buckets:
                    return self._from_disk(plan, buckets, Path(request.disk_path))
            case _:
                raise ContractError("bad_source", "ReceiveWeights names neither a collective group nor a folder")

    def _place(self, backend: str) -> torch.device:
        return self._device if backend == "nccl" else torch.device("cpu")

    def _from_group(
        self, plan: common_pb2.WeightPlan, buckets: list[Tensor], group: CollectiveGroup, end: float
    ) -> tuple[list[Tensor], list[str]]:
        digests: list[Future[str]] = []
        try:
            # Concurrent with decoding, which uses the device's default stream.
            with torch.cuda.stream(self._stream):
                for spec, bucket in zip(plan.buckets, buckets, strict=True):
                    group.broadcast(bucket, _left(end))
                    # Hashed concurrently with the transfer of the next bucket.
                    digests.append(self._hasher.submit(digest_as, bucket, spec.digest, device=self._device))
            return buckets, [digest.result() for digest in digests]
        except BaseException:
            group.abort()
            raise

    def _join(self, source: rollout_pb2.CollectiveGroup, turn: int, end: float) -> CollectiveGroup:
        """Joins the group without holding a lock: it may wait for a dead trainer, and must not block later calls."""
        group = self._group
        if group is not None and group.name == source.name and not group.aborted:
            return group
        group = CollectiveGroup.join(
            source.name,
            source.backend,
            source.store_host,
            source.store_port,
            source.rank,
            source.world_size,
            _left(end),
        )
        with self._turns:
            if turn == self._turn:
                self._group = group
                return group
        group.abort()
        raise TransientError(_LATE)

    def _from_disk(
        self, plan: common_pb2.WeightPlan, buckets: list[Tensor], folder: Path
    ) -> tuple[list[Tensor], list[str]]:
        saved = load_weights(folder)
        for name, place in tensors_of(plan, buckets):
            tensor = saved.get(name)
            if tensor is None or tensor.shape != place.shape or tensor.dtype != place.dtype:
                raise ContractError("bad_weights", f"{folder} does not hold {name} as the plan has it")
            place.copy_(tensor)
        found = zip(plan.buckets, buckets, strict=True)
        return buckets, [digest_as(bucket, spec.digest, device=self._device) for spec, bucket in found]

    @contextmanager
    def _buffers_of(
        self, plan: common_pb2.WeightPlan, device: torch.device, turn: int, end: float
    ) -> Iterator[list[Tensor]]:
        """Yields the buffers, reusing the last ones if they fit: allocation costs as much as the copy itself."""
        if not self._busy.acquire(timeout=_left(end)):
            raise TransientError("the transfer before did not end in time")
        try:
            if turn != self._turn:
                # A later transfer may have filled the buffers already.
                raise TransientError(_LATE)
            layout = f"{device} {[bucket.size_bytes for bucket in plan.buckets]}"
            if self._buffers[0] != layout:
                self._buffers = ("", [])
                self._buffers = (layout, allocate(plan, device))
            yield self._buffers[1]
        finally:
            self._busy.release()


def _left(end: float) -> float:
    return max(end - time.monotonic(), 0.001)
