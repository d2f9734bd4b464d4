"""Applies a publication of full weights to the server: pause, receive, install, resume.

A control call that times out leaves the server in an unknown state, and SGLang queues all later ones behind it. So such
a server is given up: `on_stuck` is called, which kills it if this service launched it.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from headrace.services.rollout.engines.protocol import InFlight
from headrace.services.rollout.engines.sglang.client import SGLangClient
from headrace.services.rollout.engines.sglang.generation import Generation
from headrace.services.rollout.engines.sglang.hashing import Hashing
from headrace.wire.contracts import PolicyVersion
from headrace.wire.errors import ContractError, TransientError
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import common_pb2, rollout_pb2

T = TypeVar("T")

log = get_logger("rollout.sglang")

_PROBE_S = 2.0
_LEAVE_S = 10.0


class Updater:
    """Applies update sessions to the server, at most one at a time."""

    in_place = True

    def __init__(
        self,
        client: SGLangClient,
        generation: Generation,
        hashing: Hashing,
        in_flight: InFlight,
        on_stuck: Callable[[str], None],
        *,
        control_timeout_s: float,
    ) -> None:
        """`on_stuck` is called with the reason when the server has to be given up."""
        self._client = client
        self._generation = generation
        self._hashing = hashing
        self._in_flight = in_flight
        self._on_stuck = on_stuck
        self._control_timeout_s = control_timeout_s
        self._paused = False
        self._asleep = False
        self._session = False
        self._group = ""
        self._ticket = object()
        """Identifies the current update: a transfer of an earlier one stops before its next bucket."""
        self.busy = False
        """True from `prepare` to `resume` or `discard`."""

    async def prepare(self, timeout_s: float) -> None:
        """Pauses the server and opens its update session."""
        end = time.monotonic() + timeout_s
        self.busy = True
        ticket = self._ticket = object()
        if self._in_flight is InFlight.DRAIN:
            # Requests that do not end in time are retracted.
            await self._generation.admission.drain(timeout_s / 2)
            self._require(ticket)
        if not self._paused:  # A server that was just woken is paused already.
            mode = "in_place" if self._in_flight is InFlight.IN_PLACE else "retract"
            self._paused = True
            await self._act(self._client.pause(mode, _left(end)), "to pause")
        self._require(ticket)
        await self._begin(end)

    def _require(self, ticket: object) -> None:
        """Raises TransientError if this update was ended meanwhile: it must not touch the server of a later one."""
        if self._ticket is not ticket:
            raise TransientError("the update was aborted while SGLang prepared for it")

    async def receive(
        self,
        version: PolicyVersion,
        plan: common_pb2.WeightPlan,
        source: rollout_pb2.ReceiveWeightsRequest,
        timeout_s: float,
    ) -> list[str]:
        """Receives the weights; raises TransientError by the deadline, ContractError for weights that do not fit.

        Returns no digests: SGLang cannot compute them, so the weights are verified by its checksums.
        """
        end = time.monotonic() + timeout_s
        self._hashing.expect(plan)
        match source.WhichOneof("source"):
            case "collective":
                await self._from_group(version, plan, source.collective, end)
            case "disk_path":
                await self._from_disk(version, source.disk_path, end)
            case _:
                raise ContractError("bad_source", "ReceiveWeights names neither a collective group nor a folder")
        return []

    async def install(self, version: PolicyVersion, weights_digest: str, timeout_s: float) -> None:
        """Ends the session and ensures that no keys and values of the old weights are used for new requests.

        Raises TransientError on any failure, never ContractError: the old weights are gone in any case.
        """
        end = time.monotonic() + timeout_s
        try:
            await self._end_session(end)
            found = (await self._act(self._client.model_info(_left(end)), "to report its version")).get(
                "weight_version"
            )
            if found != str(version):
                raise TransientError(f"SGLang says that its weights are {found}, not {version}")
            await self._forget_prefixes(version, end)
        except ContractError as error:
            raise TransientError(f"SGLang did not install {version}: {error}") from error
        self._generation.digests[version] = weights_digest

    async def checksums(self, timeout_s: float) -> Mapping[str, str]:
        """The server's checksums, by `Hashing.checksums`. Raises ContractError if the server refuses."""
        return await self._act(self._hashing.checksums(timeout_s), "to hash its weights")

    async def unpause(self, timeout_s: float) -> None:
        """Continues decoding. Idempotent."""
        if self._paused:
            await self._act(self._client.resume(timeout_s), "to resume")
            self._paused = False

    async def resume(self, timeout_s: float) -> None:
        """Ends the update."""
        await self.unpause(timeout_s)
        self._generation.admission.release()
        self.busy = False

    async def discard(self) -> None:
        """Ends the update early and continues decoding. Gives the server up on failure; raises nothing."""
        end = time.monotonic() + self._control_timeout_s
        self._ticket = object()
        try:
            await self._end_session(end)
            await self.resume(_left(end))
        except (TransientError, ContractError) as error:
            log.warning("discard_failed", error=str(error))
            self._on_stuck(f"SGLang could not end an update: {error}")

    async def sleep(self, timeout_s: float) -> None:
        """Pauses the server and releases its memory. Idempotent; none of our requests may be running."""
        if self._asleep:
            return
        end = time.monotonic() + timeout_s
        self._paused = True
        await self._act(self._client.pause("retract", _left(end)), "to pause")
        await self._act(self._client.release_memory(_left(end)), "to give its memory back")
        self._asleep = True

    async def wake(self, timeout_s: float) -> None:
        """Reallocates the memory; the server stays paused for the update that follows. Idempotent."""
        if self._asleep:
            await self._act(self._client.resume_memory(timeout_s), "to take its memory again")
            self._asleep = False

    async def close(self) -> None:
        """No-op: it has no background tasks."""

    async def _begin(self, end: float) -> None:
        try:
            await self._act(self._client.begin_update(_left(end)), "to open an update session")
        except ContractError:
            # Closes a session left open by an earlier trainer or an earlier process of this replica.
            await self._act(self._client.end_update(_left(end)), "to close an old session")
            await self._act(self._client.begin_update(_left(end)), "to open an update session")
        self._session = True

    async def _end_session(self, end: float) -> None:
        if self._session:
            self._session = False
            await self._act(self._client.end_update(_left(end)), "to close the session")

    async def _from_group(
        self,
        version: PolicyVersion,
        plan: common_pb2.WeightPlan,
        source: rollout_pb2.CollectiveGroup,
        end: float,
    ) -> None:
        if not self._session:
            await self._begin(end)
        ticket = self._ticket
        await self._join(source, end)
        last = len(plan.buckets) - 1
        try:
            # One at a time: two requests may overtake each other, and the broadcasts carry no names.
            for number, bucket in enumerate(plan.buckets):
                if self._ticket is not ticket:
                    raise TransientError("the transfer was given up")
                name = str(version) if number == last else None
                post = self._client.receive_bucket(bucket, source.name, name, _left(end))
                await self._act(post, f"to receive bucket {number} of {last + 1}")
        except ContractError as error:
            await self._leave(end)
            if _BROKEN_TRANSFER in error.message:
                raise TransientError(f"SGLang lost the trainer: {error.message}") from error
            raise

    async def _join(self, source: rollout_pb2.CollectiveGroup, end: float) -> None:
        if self._group == source.name:
            return
        await _reach(source.store_host, source.store_port)
        if self._group:
            await self._leave(end)
        joining = self._client.join_group(
            source.name,
            source.backend,
            source.store_host,
            source.store_port,
            source.rank,
            source.world_size,
            _left(end),
        )
        try:
            await self._act(joining, f"to join the group {source.name}")
        except ContractError as error:
            raise TransientError(f"SGLang did not join the group {source.name}: {error.message}") from error
        self._group = source.name

    async def _leave(self, end: float) -> None:
        name, self._group = self._group, ""
        try:
            await self._act(self._client.leave_group(name, min(_left(end), _LEAVE_S)), f"to leave the group {name}")
        except ContractError as error:
            log.info("group_was_gone", group=name, error=error.message)

    async def _from_disk(self, version: PolicyVersion, folder: str, end: float) -> None:
        # A session is for transfers; a load from disk is complete by itself.
        await self._end_session(end)
        await self._act(self._client.load_folder(folder, str(version), _left(end)), f"to load {folder}")

    async def _forget_prefixes(self, version: PolicyVersion, end: float) -> None:
        """Prevents that cached keys and values computed by the old weights are used under the new ones.

        A retracted server has no running request and flushes its whole cache. With `in_place`, running requests hold
        theirs and the flush is refused; so the requests of each installation get a cache salt of their own.
        """
        if self._in_flight is not InFlight.IN_PLACE:
            await self._act(self._client.flush_cache(_left(end)), "to flush its cache")
            return
        # Unique even per version: damaged weights, or an earlier process, may have left entries in the cache.
        self._generation.salt = f"{version}/{uuid.uuid4().hex}"
        try:
            await self._act(self._client.flush_cache(_left(end)), "to flush its cache")
        except ContractError as error:
            log.info("cache_kept", reason=error.message)

    async def _act(self, call: Awaitable[T], what: str) -> T:
        try:
            return await call
        except TransientError as error:
            self._on_stuck(f"waited for SGLang {what}: {error}")
            raise


_BROKEN_TRANSFER = "Failed to receive weights"


async def _reach(host: str, port: int) -> None:
    """Probes the trainer's store first: a server that joins a group whose trainer is gone waits half an hour."""
    try:
        async with asyncio.timeout(_PROBE_S):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
    except (OSError, TimeoutError) as error:
        raise TransientError(f"the trainer's store at {host}:{port} is not there: {error}") from error


def _left(end: float) -> float:
    return max(end - time.monotonic(), 0.001)
