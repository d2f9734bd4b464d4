"""The versions of this life on their way to the replicas: held, sent, saved, and published on request."""

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from headrace.services.trainer import metrics
from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.publication.checksums import engine_checksums
from headrace.services.trainer.publication.copies import Copies
from headrace.services.trainer.publication.held import Held, HeldVersions
from headrace.services.trainer.publication.model_folder import folder_checksums
from headrace.services.trainer.publication.outgoing import weight_groups
from headrace.services.trainer.publication.sender import Sender
from headrace.services.trainer.registration import Stub
from headrace.wire import tracing
from headrace.wire.contracts.digests import XXH3
from headrace.wire.errors import TransientError, WaitTimeoutError
from headrace.wire.peers.rpc import call
from headrace.wire.process.environment import nccl_cumem
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import common_pb2, orchestrator_pb2
from headrace.wire.weights import device_names, nccl_version, tensors_of

_RETRY_S = 0.5
log = get_logger("trainer.publisher")


class Publisher:
    """Holds the newest versions; sends or saves them as often as requested."""

    def __init__(
        self,
        *,
        host: str,
        dtype: torch.dtype,
        bucket_bytes: int,
        weights_folder: Path,
        model_path: Path,
        disk_only: bool,
        adapter_config: str = "",
        canary: Callable[[Backend], common_pb2.Canary],
    ) -> None:
        """`disk_only`: collective groups are never used. `adapter_config`: adapters travel, always by disk."""
        self._dtype = dtype
        self._model_path = model_path
        # Adapters are small, and a process that checks their file needs no torch.
        self._versions = HeldVersions(bucket_bytes=bucket_bytes, algorithm=XXH3 if adapter_config else "")
        self._copies = Copies(weights_folder, model_path)
        self._adapter_config = adapter_config
        self._disk_only = disk_only or bool(adapter_config)
        self._canary = canary
        self._checksums: dict[tuple[str, str], asyncio.Task[dict[str, str]]] = {}
        self._of_folder: dict[str, asyncio.Task[dict[str, str]]] = {}
        self._device = torch.device("cpu")
        self.sender = Sender(host)
        self.canary_gap = math.nan
        """Largest |trainer - engine| logprob of the canary of the last publication, nats; NaN without one."""

    @property
    def routes(self) -> common_pb2.Routes:
        """How weights can leave this process."""
        if self._disk_only:
            return common_pb2.Routes(ranks=1)
        on_gpu = self._device.type == "cuda"
        return common_pb2.Routes(
            backends=["nccl", "gloo"] if on_gpu else ["gloo"],
            ranks=1,
            nccl_version=nccl_version() if on_gpu else "",
            nccl_cumem=nccl_cumem() if on_gpu else "",
            devices=device_names(self._device),
        )

    def hold(self, backend: Backend, version: int) -> Held:
        """Copies the weights as `version`. Called by the main thread while the weights do not change."""
        with metrics.SNAPSHOT_SECONDS.time():
            held = self._versions.put(version, weight_groups(backend, self._dtype), self._canary(backend))
            # Offloaded weights are in host memory, wherever the passes run.
            self._device = held.snapshot.device
            held.snapshot.plan.adapter_config = self._adapter_config
            return held

    async def publish(self, stub: Stub, incarnation: int, *, timeout_s: float) -> None:
        """Requests the publication of the newest version until it succeeds; WaitTimeoutError at the deadline."""
        held = self._versions.newest
        begin = time.monotonic()
        request = orchestrator_pb2.PublishRequest(
            incarnation=incarnation,
            version=held.version,
            plan=held.snapshot.plan,
            canary=held.canary,
            disk_path=await self.save(held.version) if self._disk_only else "",
        )
        with tracing.span("publish", begins=True, version=held.version):
            answer = await self._ask(stub, request, begin + timeout_s, timeout_s)
        missed = {outcome.replica_id: outcome.reason for outcome in answer.outcomes if not outcome.committed}
        gaps = [outcome.canary_gap for outcome in answer.outcomes if outcome.HasField("canary_gap")]
        self.canary_gap = max(gaps, default=math.nan)
        seconds = time.monotonic() - begin
        metrics.PUBLICATION_SECONDS.observe(seconds)
        replicas = len(answer.outcomes) - len(missed)
        log.info("published", version=held.version, replicas=replicas, missed=missed, seconds=round(seconds, 3))

    async def _ask(
        self, stub: Stub, request: orchestrator_pb2.PublishRequest, end: float, timeout_s: float
    ) -> orchestrator_pb2.PublishResponse:
        while True:
            left = end - time.monotonic()
            try:
                return await call(stub.Publish, request, timeout_s=max(left, 0.1), what="the orchestrator to publish")
            except TransientError as error:
                if left <= _RETRY_S:
                    what = f"the publication of version {request.version} ({error})"
                    raise WaitTimeoutError(what, timeout_s) from error
                log.warning("publish_failed", version=request.version, reason=str(error))
            await asyncio.sleep(_RETRY_S)

    async def open_group(self, version: int, name: str, replica_id: str = "") -> tuple[str, int]:
        """Opens the rendezvous of a group for this version and later ones; returns its host and port."""
        self._versions.version(version)
        return await self.sender.open(name, replica_id)

    async def send(self, version: int, name: str, backend: str, world_size: int, deadline_s: float) -> None:
        """Broadcasts a held version over the group `name`; TransientError when it is not done in time."""
        with tracing.span("send weights", version=version, backend=backend, world_size=world_size):
            await self.sender.send(self._versions.version(version), name, backend, world_size, deadline_s)

    async def save(self, version: int) -> str:
        """Returns the folder of a held version, writing it if it is not there."""
        with tracing.span("save weights", version=version):
            return str(await self._copies.save(self._versions.version(version)))

    async def checksums(self, version: int, layout: str) -> dict[str, str]:
        """What an engine's own checksums of a held version must be; empty if only the engine can compute them."""
        held = self._versions.version(version)
        key = (held.digest, layout)
        if key not in self._checksums:
            # One task for all callers, whether or not they wait for its end.
            self._checksums = {
                key: asyncio.create_task(asyncio.to_thread(_checksums, held, layout, self._model_path, self._device))
            }
        return await asyncio.shield(self._checksums[key])

    async def folder_checksums(self, version: int, layout: str) -> dict[str, str]:
        """Returns what an engine's own checksums of `model.path` must be; computed once per life and layout."""
        plan = self._versions.version(version).snapshot.plan
        known = self._of_folder.get(layout)
        if known is None or (known.done() and (known.cancelled() or known.exception() is not None)):
            made = asyncio.to_thread(_folder_checksums, self._model_path, plan, layout, self._device)
            known = self._of_folder[layout] = asyncio.create_task(made)
        return await asyncio.shield(known)


def _checksums(held: Held, layout: str, model_path: Path, device: torch.device) -> dict[str, str]:
    """Computes them, on a GPU beside the training: the snapshot is complete before it can be requested."""
    with held.read() as snapshot, _beside(device) as where:
        named = tensors_of(snapshot.plan, snapshot.buckets)
        return engine_checksums(named, layout, _config(model_path), where)


def _folder_checksums(
    model_path: Path, plan: common_pb2.WeightPlan, layout: str, device: torch.device
) -> dict[str, str]:
    with _beside(device) as where:
        return folder_checksums(model_path, plan, layout, _config(model_path), where)


def _config(model_path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((model_path / "config.json").read_text())
    return found


@contextmanager
def _beside(device: torch.device) -> Iterator[torch.device | None]:
    """Yields where to hash: on a GPU on a separate stream, on a CPU where the tensors lie (None)."""
    if device.type != "cuda":
        yield None
        return
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    with torch.cuda.device(device), torch.cuda.stream(side):
        yield device
