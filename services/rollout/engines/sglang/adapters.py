"""Publications of low-rank adapters: the new one is loaded beside the one in use, then requests switch to it.

The server's own weights never change, so it is not paused and nothing is flushed: SGLang caches the prefixes of each
adapter separately.
"""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path

import xxhash

from headrace.services.rollout.engines.protocol import InFlight
from headrace.services.rollout.engines.sglang.client import SGLangClient
from headrace.services.rollout.engines.sglang.generation import Generation
from headrace.services.rollout.engines.sglang.requests import Adapter
from headrace.wire.contracts import PolicyVersion
from headrace.wire.contracts.digests import XXH3, algorithm_of, named, unknown_algorithm
from headrace.wire.errors import ContractError, TransientError
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import common_pb2, rollout_pb2

log = get_logger("rollout.sglang")

_FILE = "adapter_model.safetensors"
_UNUSED_POLL_S = 0.2


class AdapterUpdater:
    """Applies update sessions to the server when adapters are published. Same interface as `Updater`."""

    in_place = False

    def __init__(
        self,
        client: SGLangClient,
        generation: Generation,
        in_flight: InFlight,
        on_stuck: Callable[[str], None],
        *,
        control_timeout_s: float,
        unload_timeout_s: float,
    ) -> None:
        """`unload_timeout_s` covers SGLang's wait for the last request that uses an adapter."""
        self._client = client
        self._generation = generation
        self._in_flight = in_flight
        self._on_stuck = on_stuck
        self._control_timeout_s = control_timeout_s
        self._unload_timeout_s = unload_timeout_s
        self._staged = ""
        self._loads = 0
        self._background: set[asyncio.Task[None]] = set()
        self.busy = False

    async def prepare(self, timeout_s: float) -> None:
        """Marks the update as begun; nothing has to be paused."""
        self.busy = True

    async def receive(
        self,
        version: PolicyVersion,
        plan: common_pb2.WeightPlan,
        source: rollout_pb2.ReceiveWeightsRequest,
        timeout_s: float,
    ) -> list[str]:
        """Loads the adapter from the folder; returns the digests of its file."""
        if not plan.adapter_config:
            raise ContractError("bad_plan", "whole weights were sent to a server that takes adapters (model.lora)")
        if source.WhichOneof("source") != "disk_path":
            raise ContractError("bad_source", "SGLang takes adapters from the disk only")
        end = time.monotonic() + timeout_s
        folder = Path(source.disk_path)
        digests = await asyncio.to_thread(adapter_digests, plan, folder / _FILE)
        await self._drop_staged()
        self._loads += 1
        # A version may be published repeatedly, but SGLang accepts a name only once.
        name = f"{version}-{self._loads}"
        try:
            await self._client.load_adapter(name, str(folder), max(end - time.monotonic(), 0.001))
        except TransientError as error:
            self._on_stuck(f"waited for SGLang to load an adapter: {error}")
            raise
        self._staged = name
        return digests

    async def install(self, version: PolicyVersion, weights_digest: str, timeout_s: float) -> None:
        """Switches new requests to the new adapter; running ones continue according to `rollout.in_flight`."""
        if self._in_flight is InFlight.DRAIN:
            # Requests that do not end in time are treated as with `retract`.
            await self._generation.admission.drain(timeout_s / 2)
        old = self._generation.adapter
        self._generation.digests[version] = weights_digest
        self._generation.adapter = Adapter(self._staged, version)
        self._staged = ""
        if old is not None:
            self._spawn(self._unload(old.name))
        if self._in_flight is InFlight.IN_PLACE:
            return
        try:
            # Running requests return with their tokens so far, and are sent again under the new adapter.
            await self._generation.interrupt(timeout_s)
        except ContractError as error:
            # The new adapter is already in use: this must not look like a refusal that changed nothing.
            raise TransientError(f"SGLang did not interrupt its requests: {error}") from error

    async def checksums(self, timeout_s: float) -> Mapping[str, str]:
        """Returns nothing: the digests of the buckets suffice."""
        return {}

    async def unpause(self, timeout_s: float) -> None:
        """No-op: nothing was paused."""

    async def resume(self, timeout_s: float) -> None:
        """Ends the update."""
        self._generation.admission.release()
        self.busy = False

    async def discard(self) -> None:
        """Ends the update early; the adapter in use stays."""
        await self._drop_staged()
        await self.resume(self._control_timeout_s)

    async def sleep(self, timeout_s: float) -> None:
        """Raises ContractError: the base model would be lost, and only adapters are published."""
        raise ContractError("no_turns", "a server with adapters (model.lora) cannot release its base")

    async def wake(self, timeout_s: float) -> None:
        """No-op: it never sleeps."""

    async def close(self) -> None:
        """Cancels pending unloads; the server keeps those adapters."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _drop_staged(self) -> None:
        name, self._staged = self._staged, ""
        if name:
            self._spawn(self._unload(name))

    async def _unload(self, name: str) -> None:
        # SGLang waits for an adapter's last request before it unloads it, and blocks other loads meanwhile.
        while self._generation.uses(name):
            await asyncio.sleep(_UNUSED_POLL_S)
        try:
            await self._client.unload_adapter(name, self._unload_timeout_s)
        except (TransientError, ContractError) as error:
            log.warning("adapter_kept", adapter=name, error=str(error))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def adapter_digests(plan: common_pb2.WeightPlan, file: Path) -> list[str]:
    """xxh3-128 of each bucket of the plan, in the plan's notation, computed from a safetensors file without torch.

    Raises ContractError: `bad_weights` if the file cannot be read or lacks tensors of the plan, `unknown_digest` for a
    plan with another digest algorithm.
    """
    for algorithm in {algorithm_of(bucket.digest) for bucket in plan.buckets} - {XXH3}:
        raise ContractError("unknown_digest", unknown_algorithm(algorithm))
    try:
        data = file.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        view = memoryview(data)[8 + length :]
        digests = []
        for bucket in plan.buckets:
            state = xxhash.xxh3_128()
            for spec in bucket.tensors:
                begin, end = header[spec.name]["data_offsets"]
                state.update(view[begin:end])
            found = state.hexdigest()
            digests.append(named(XXH3, found) if ":" in bucket.digest else found)
        return digests
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ContractError("bad_weights", f"{file} does not hold the adapter of the plan: {error!r}") from error
