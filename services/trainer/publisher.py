"""Publication as the trainer sees it: an immutable snapshot, a canary, one Publish call, and the sending."""

import asyncio
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch._C._distributed_c10d import TCPStore

from services.trainer import metrics
from services.trainer.algorithms.logprobs import token_logprobs
from services.trainer.backends.backend import Backend
from services.trainer.model import Policy
from services.trainer.reporter import Stub
from wire.errors import ContractError, FencedError, TransientError, WaitTimeoutError
from wire.rpc import call
from wire.telemetry import get_logger
from wire.v1 import common_pb2, orchestrator_pb2
from wire.weights import CollectiveGroup, Snapshot, make_snapshot, open_store, save_weights

_STORES_KEPT = 8
_RETRY_S = 0.5
log = get_logger("trainer.publisher")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What is published of one version."""

    version: int
    snapshot: Snapshot
    canary: common_pb2.Canary
    disk_path: str

    @property
    def digest(self) -> str:
        """Of the weights as they travel."""
        return self.snapshot.plan.weights_digest


def make_canary(policy: Policy, *, seed: int, length: int, tolerance: float, chunk: int) -> common_pb2.Canary:
    """A prompt drawn from `seed` and the policy's logprobs of it at temperature 1."""
    vocab = policy.head.shape[0]
    token_ids = np.random.default_rng(seed).integers(0, vocab, length).astype("<i4")
    ids = torch.from_numpy(token_ids.astype(np.int64)).to(policy.device)
    with torch.no_grad():
        hidden = policy.hidden(ids[None, :-1])[0]
        scores = token_logprobs(
            hidden, policy.head, ids[1:], temperature=torch.ones(length - 1, device=ids.device), chunk=chunk
        )
    logprobs = scores.logprobs.float().cpu().numpy().astype("<f4")
    return common_pb2.Canary(token_ids=token_ids.tobytes(), logprobs=logprobs.tobytes(), tolerance=tolerance)


class Publisher:
    """Holds the snapshot of the newest version; sends it as often as it is asked for."""

    def __init__(
        self,
        *,
        host: str,
        dtype: torch.dtype,
        bucket_bytes: int,
        weights_folder: Path | None,
        canary: Callable[[Policy], common_pb2.Canary],
    ) -> None:
        self._host = host
        self._dtype = dtype
        self._bucket_bytes = bucket_bytes
        self._weights_folder = weights_folder
        self._canary = canary
        self._stores: dict[str, TCPStore] = {}
        self._sender = ThreadPoolExecutor(max_workers=4, thread_name_prefix="send-weights")
        self.current: Published | None = None

    def hold(self, backend: Backend, version: int) -> Published:
        """Copies the weights as `version`; called by the main thread while nobody changes them."""
        with metrics.SNAPSHOT_SECONDS.time():
            canary = self._canary(backend.policy)
            snapshot = make_snapshot(backend.named_weights(), dtype=self._dtype, bucket_bytes=self._bucket_bytes)
            disk_path = ""
            if self._weights_folder is not None:
                path = self._weights_folder / f"v{version:06d}"
                cast = ((name, weight.to(self._dtype)) for name, weight in backend.named_weights())
                save_weights(path, cast, {"version": str(version), "digest": snapshot.plan.weights_digest})
                disk_path = str(path.absolute())
                _keep_newest(self._weights_folder, 2)
        self.current = Published(version=version, snapshot=snapshot, canary=canary, disk_path=disk_path)
        return self.current

    async def publish(self, stub: Stub, incarnation: int, *, timeout_s: float) -> None:
        """Asks the orchestrator to publish the held version until it has; raises WaitTimeoutError at the deadline."""
        held = self._held()
        request = orchestrator_pb2.PublishRequest(
            incarnation=incarnation,
            version=held.version,
            plan=held.snapshot.plan,
            canary=held.canary,
            disk_path=held.disk_path,
        )
        begin = time.monotonic()
        answer = await self._ask(stub, request, begin + timeout_s, timeout_s)
        missed = {outcome.replica_id: outcome.reason for outcome in answer.outcomes if not outcome.committed}
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

    async def open_group(self, version: int, name: str) -> tuple[str, int, str]:
        """Opens the rendezvous of one transfer; returns its host, its port and the backend."""
        held = self._check_version(version)
        store, port = await asyncio.to_thread(open_store, self._host)
        self._stores[name] = store
        while len(self._stores) > _STORES_KEPT:
            self._stores.pop(next(iter(self._stores)))
        return self._host, port, "nccl" if held.snapshot.buckets[0].is_cuda else "gloo"

    async def send(self, version: int, name: str, backend: str, world_size: int, deadline_s: float) -> None:
        """Broadcasts the held snapshot over the group `name`; raises TransientError when it is not done in time."""
        held = self._check_version(version)
        if name not in self._stores:
            raise ContractError("unknown_group", f"no group {name!r} was opened here")
        port = self._stores[name].port
        begin = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._sender, self._send, held, port, name, backend, world_size, deadline_s)
        finally:
            # A cancelled call lands here at once: without its store nobody waits for a member that will not come.
            self._stores.pop(name, None)
        metrics.SEND_SECONDS.observe(time.monotonic() - begin)
        metrics.SENT_BYTES.inc(sum(bucket.size_bytes for bucket in held.snapshot.plan.buckets))

    def _send(self, held: Published, port: int, name: str, backend: str, world_size: int, deadline_s: float) -> None:
        end = time.monotonic() + deadline_s
        buckets = held.snapshot.buckets
        group = CollectiveGroup.join(name, backend, self._host, port, 0, world_size, deadline_s)
        try:
            for bucket in buckets:
                sent = bucket.cpu() if backend == "gloo" else bucket
                group.broadcast(sent, max(end - time.monotonic(), 0.001))
        finally:
            group.abort()

    def _held(self) -> Published:
        if self.current is None:
            raise TransientError("the trainer holds no snapshot yet")
        return self.current

    def _check_version(self, version: int) -> Published:
        held = self._held()
        if held.version > version:
            raise FencedError(f"version {version} is over, the trainer holds {held.version}")
        if held.version < version:
            raise ContractError("unknown_version", f"version {version} is not made yet, {held.version} is")
        return held


def _keep_newest(folder: Path, count: int) -> None:
    """Removes older versions: who reads one that goes is told by its manifest, and asks again."""
    for path in sorted(folder.glob("v*"))[:-count]:
        shutil.rmtree(path, ignore_errors=True)
