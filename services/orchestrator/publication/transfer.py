"""The transfer of one version to one replica: over its collective group, or from the disk."""

import asyncio
from collections.abc import Sequence

from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.publication.collective_groups import CollectiveGroups
from headrace.services.orchestrator.publication.routes import DISK, Route
from headrace.services.orchestrator.settings import PublicationTable
from headrace.services.orchestrator.state.registry import Replica
from headrace.services.orchestrator.state.run_state import RunState
from headrace.wire.errors import ContractError, TransientError
from headrace.wire.peers.rpc import call
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1 import rollout_pb2, trainer_pb2
from headrace.wire.v1.common_pb2 import TensorChecksum, WeightPlan

_GRACE_S = 0.5
_BREAK_OFF_S = 0.3
"""How long the other end may take to notice that a transfer was cancelled."""


class TrainerAwayError(TransientError):
    """The trainer did not provide the weights: this does not count as a miss of the replica."""


class Transfer:
    """Transfers of one publication."""

    def __init__(
        self,
        state: RunState,
        clients: Clients,
        groups: CollectiveGroups,
        request: pb.PublishRequest,
        publication_id: str,
        times: PublicationTable,
    ) -> None:
        self._state = state
        self._clients = clients
        self._groups = groups
        self._request = request
        self._id = publication_id
        self._times = times

    async def to(self, replica: Replica, route: Route, *, checked_later: bool) -> None:
        """Returns when all buckets have arrived; raises a HeadraceError by the deadline.

        `checked_later`: the engine cannot digest what arrived and is verified by its checksums instead.
        """
        digests = await (self._from_disk(replica) if route.backend == DISK else self._over_group(replica, route))
        if digests or not checked_later:
            check_digests(self._request.plan, digests, replica.replica_id)

    async def _over_group(self, replica: Replica, route: Route) -> list[str]:
        trainer = self._state.trainer.address
        request = self._request
        try:
            group = await self._groups.take(
                replica,
                trainer=trainer,
                incarnation=request.incarnation,
                version=request.version,
                backend=route.backend,
            )
        except TransientError as error:
            raise TrainerAwayError(str(error)) from error
        sending = asyncio.create_task(self._send(group))
        receiving = asyncio.create_task(self._receive(replica, rollout_pb2.ReceiveWeightsRequest(collective=group)))
        try:
            await _both(sending, receiving)
            return receiving.result()
        except BaseException:
            await self._groups.drop(replica, trainer)
            raise

    async def checksums(self, replica: Replica, layout: str) -> Sequence[TensorChecksum]:
        """The expected values of the engine's own checksums, as far as the trainer can compute them."""
        if not layout or replica.dtype != self._request.plan.buckets[0].dtype:
            return ()
        request = trainer_pb2.GetChecksumsRequest(version=self._request.version, format=layout)
        stub = self._clients.trainer(self._state.trainer.address)
        timeout = self._times.verify_s
        answer = await call(stub.GetChecksums, request, timeout_s=timeout, what="the trainer to hash its weights")
        return answer.checksums

    async def folder_checksums(self, layout: str, timeout_s: float) -> dict[str, str]:
        """The expected values of the engine's own checksums of `model.path`; raises a HeadraceError.

        The trainer reads the folder once: after a timeout, the next publication asks again.
        """
        request = trainer_pb2.GetChecksumsRequest(version=self._request.version, format=layout, model_folder=True)
        stub = self._clients.trainer(self._state.trainer.address)
        answer = await call(stub.GetChecksums, request, timeout_s=timeout_s, what="the trainer to hash model.path")
        return {one.name: one.value for one in answer.checksums}

    async def _from_disk(self, replica: Replica) -> list[str]:
        # A replica that loads from disk leaves its group, if it was in one.
        await self._groups.drop(replica, self._state.trainer.address)
        path = self._request.disk_path
        if not path:
            request = trainer_pb2.SaveWeightsRequest(version=self._request.version)
            stub = self._clients.trainer(self._state.trainer.address)
            seconds = self._times.transfer_s
            try:
                path = (await call(stub.SaveWeights, request, timeout_s=seconds, what="the trainer to save")).disk_path
            except TransientError as error:
                raise TrainerAwayError(str(error)) from error
        return await self._receive(replica, rollout_pb2.ReceiveWeightsRequest(disk_path=path))

    async def _send(self, group: rollout_pb2.CollectiveGroup) -> None:
        request = trainer_pb2.SendWeightsRequest(
            version=self._request.version,
            group_name=group.name,
            backend=group.backend,
            world_size=group.world_size,
            deadline_s=self._times.transfer_s,
        )
        stub = self._clients.trainer(self._state.trainer.address)
        timeout = self._times.transfer_s + _GRACE_S
        await call(stub.SendWeights, request, timeout_s=timeout, what="the trainer to send")

    async def _receive(self, replica: Replica, request: rollout_pb2.ReceiveWeightsRequest) -> list[str]:
        request.publication_id = self._id
        request.deadline_s = self._times.transfer_s
        stub = self._clients.rollout(replica.address)
        timeout = self._times.transfer_s + _GRACE_S
        answer = await call(stub.ReceiveWeights, request, timeout_s=timeout, what=f"{replica.replica_id} to receive")
        return list(answer.digests)


async def _both(sending: asyncio.Task[None], receiving: asyncio.Task[list[str]]) -> None:
    """Waits for both ends; when one fails, cancels the other. Raises the first failure."""
    tasks: tuple[asyncio.Task[None] | asyncio.Task[list[str]], ...] = (sending, receiving)
    try:
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if pending:
            # The sender first: that closes its end of the group, and the receiver's call returns.
            sending.cancel()
            await asyncio.wait(pending, timeout=_BREAK_OFF_S)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def check_digests(plan: WeightPlan, digests: Sequence[str], who: str) -> None:
    """Raises ContractError (`bad_digest`) unless the digests of the received bytes match the plan."""
    wanted = [bucket.digest for bucket in plan.buckets]
    if list(digests) != wanted:
        wrong = sum(1 for a, b in zip(digests, wanted, strict=False) if a != b) + abs(len(digests) - len(wanted))
        raise ContractError("bad_digest", f"{who}: {wrong} of {len(wanted)} buckets arrived damaged")
