"""One publication of one version to a snapshot of replicas, phase by phase; see docs/architecture.md."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from services.orchestrator import metrics
from services.orchestrator.peers import Peers
from services.orchestrator.registry import Registry, Replica
from services.orchestrator.run_state import RunState
from services.orchestrator.settings import PublicationTable
from wire.contracts import PolicyVersion
from wire.errors import ContractError, HeadraceError
from wire.events import EventLog
from wire.rpc import call
from wire.telemetry import get_logger
from wire.v1 import orchestrator_pb2 as pb
from wire.v1 import rollout_pb2, trainer_pb2
from wire.v1.common_pb2 import Canary, WeightPlan
from wire.v1.message_pb2 import PolicyVersion as WireVersion

log = get_logger("orchestrator.publication")
_MARGIN_S = 2.0
_BREAK_OFF_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a publication is, for `status`: the phase and whom it waits for."""

    version: PolicyVersion
    phase: str
    waiting_for: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """Whom a publication deals with."""

    state: RunState
    registry: Registry
    peers: Peers
    events: EventLog
    times: PublicationTable


class Miss(Exception):
    """A replica missed a phase: the others go on without it."""


class Session:
    """One publication of one version to a snapshot of members."""

    def __init__(
        self, office: Office, request: pb.PublishRequest, publication_id: str, note: Callable[[Progress], None]
    ) -> None:
        self._office = office
        self._note_progress = note
        self._request = request
        self._id = publication_id
        self._times = office.times
        self._version = PolicyVersion(incarnation=request.incarnation, version=request.version)
        self._missed: dict[str, str] = {}

    async def run(self, members: Sequence[Replica]) -> list[pb.ReplicaOutcome]:
        """All phases; returns one outcome a member."""
        holders = [replica for replica in members if self._holds(replica)]
        left = [replica for replica in members if replica not in holders]
        if left:
            left = await self._phase("prepare", left, self._prepare)
            left = await self._timed_transfer(left)
            left = await self._phase("verify", left, self._verify)
            left = await self._phase("commit", left, self._commit)
        left += holders
        committed = {replica.replica_id for replica in left}
        log.info("published", version=str(self._version), committed=sorted(committed), missed=self._missed)
        return [
            pb.ReplicaOutcome(
                replica_id=replica.replica_id,
                committed=replica.replica_id in committed,
                reason=self._missed.get(replica.replica_id, ""),
            )
            for replica in members
        ]

    def _holds(self, replica: Replica) -> bool:
        """A repeated publication leaves alone who has it already."""
        return replica.version == self._version and replica.state == pb.REPLICA_STATE_SERVING

    async def _phase(
        self, name: str, members: Sequence[Replica], act: Callable[[Replica], Awaitable[None]]
    ) -> list[Replica]:
        """Runs `act` on all members at once; returns those who made it. The others are aborted."""
        begin = time.monotonic()
        self._note(name, members)
        results = await asyncio.gather(*(act(replica) for replica in members), return_exceptions=True)
        metrics.PUBLICATION_SECONDS.labels(name).observe(time.monotonic() - begin)
        left = []
        for replica, result in zip(members, results, strict=True):
            if result is None:
                left.append(replica)
            elif isinstance(result, HeadraceError | Miss | RuntimeError):
                await self._leave_out(replica, f"{name}: {result}")
            else:
                raise result
        return left

    def _note(self, phase: str, members: Sequence[Replica], also: str = "") -> None:
        names = ", ".join([*([also] if also else []), *(replica.replica_id for replica in members)])
        progress = Progress(version=self._version, phase=phase, waiting_for=names, since=time.monotonic())
        self._note_progress(progress)

    async def _leave_out(self, replica: Replica, reason: str) -> None:
        log.warning("replica_missed_publication", replica=replica.replica_id, version=str(self._version), reason=reason)
        self._missed[replica.replica_id] = reason
        request = rollout_pb2.AbortWeightsRequest(publication_id=self._id)
        try:
            stub = self._office.peers.rollout(replica.address)
            await call(stub.AbortWeights, request, timeout_s=_MARGIN_S, what=f"{replica.replica_id} to abort")
        except (HeadraceError, RuntimeError):
            return  # It is gone or will abort by its own deadline.

    async def _prepare(self, replica: Replica) -> None:
        seconds = self._times.prepare_s
        request = rollout_pb2.PrepareWeightsRequest(
            publication_id=self._id,
            version=WireVersion(incarnation=self._version.incarnation, version=self._version.version),
            plan=self._request.plan,
            deadline_s=self._total_s(),
        )
        stub = self._office.peers.rollout(replica.address)
        answer = await call(stub.PrepareWeights, request, timeout_s=seconds, what=f"{replica.replica_id} to prepare")
        if not answer.accepted:
            raise Miss(answer.reason)

    def _total_s(self) -> float:
        times = self._times
        return times.prepare_s + times.transfer_s * times.attempts + times.verify_s + times.commit_s

    async def _timed_transfer(self, members: list[Replica]) -> list[Replica]:
        begin = time.monotonic()
        left = await self._transfer(members)
        metrics.PUBLICATION_SECONDS.labels("transfer").observe(time.monotonic() - begin)
        return left

    async def _transfer(self, members: list[Replica]) -> list[Replica]:
        """From disk if there is a copy, else over one collective group, rebuilt without whoever broke it."""
        if self._request.disk_path:
            return await self._phase("transfer", members, self._receive_from_disk)
        done: list[Replica] = []
        waiting = members
        for attempt in range(1, self._times.attempts + 1):
            last = attempt == self._times.attempts
            batches = [[replica] for replica in waiting] if last else [waiting]
            failed: list[Replica] = []
            for index, batch in enumerate(batches):
                if batch:
                    good = await self._broadcast(batch, f"{self._id}-{attempt}.{index}")
                    done += good
                    failed += [replica for replica in batch if replica not in good]
            waiting = await self._phase("ping", failed, self._ping) if not last else failed
            if not waiting:
                return done
        for replica in waiting:
            await self._leave_out(replica, "transfer: the collective failed on every attempt")
        return done

    async def _broadcast(self, members: Sequence[Replica], group_name: str) -> list[Replica]:
        """One collective transfer; returns the members whose digests are those of the plan."""
        self._note("transfer", members, also="trainer")
        trainer = self._office.peers.trainer(self._office.state.trainer.address)
        request = self._request
        try:
            store = await call(
                trainer.OpenGroup,
                trainer_pb2.OpenGroupRequest(version=request.version, group_name=group_name),
                timeout_s=10.0,
                what="the trainer to open a group",
            )
        except (HeadraceError, RuntimeError) as error:
            log.warning("transfer_failed", group=group_name, error=str(error))
            return []
        group = rollout_pb2.CollectiveGroup(
            name=group_name,
            backend=store.backend,
            store_host=store.store_host,
            store_port=store.store_port,
            world_size=len(members) + 1,
        )
        acts = [self._send(group)]
        acts += [self._receive(replica, group, rank) for rank, replica in enumerate(members, start=1)]
        sent, *results = await _all_or_break_off([asyncio.create_task(act) for act in acts])
        for who, result in zip(("trainer", *(r.replica_id for r in members)), (sent, *results), strict=True):
            if isinstance(result, BaseException):
                log.warning("transfer_failed", group=group_name, who=who, error=str(result))
        return [replica for replica, result in zip(members, results, strict=True) if result is None]

    async def _send(self, group: rollout_pb2.CollectiveGroup) -> None:
        stub = self._office.peers.trainer(self._office.state.trainer.address)
        request = trainer_pb2.SendWeightsRequest(
            version=self._request.version,
            group_name=group.name,
            backend=group.backend,
            world_size=group.world_size,
            deadline_s=self._times.transfer_s,
        )
        timeout = self._times.transfer_s + _MARGIN_S
        await call(stub.SendWeights, request, timeout_s=timeout, what="the trainer to send")

    async def _receive(self, replica: Replica, group: rollout_pb2.CollectiveGroup, rank: int) -> None:
        own = rollout_pb2.CollectiveGroup()
        own.CopyFrom(group)
        own.rank = rank
        await self._receive_and_check(replica, rollout_pb2.ReceiveWeightsRequest(collective=own))

    async def _receive_from_disk(self, replica: Replica) -> None:
        await self._receive_and_check(replica, rollout_pb2.ReceiveWeightsRequest(disk_path=self._request.disk_path))

    async def _receive_and_check(self, replica: Replica, request: rollout_pb2.ReceiveWeightsRequest) -> None:
        request.publication_id = self._id
        request.deadline_s = self._times.transfer_s
        stub = self._office.peers.rollout(replica.address)
        timeout = self._times.transfer_s + _MARGIN_S
        answer = await call(stub.ReceiveWeights, request, timeout_s=timeout, what=f"{replica.replica_id} to receive")
        check_digests(self._request.plan, list(answer.digests), replica.replica_id)

    async def _ping(self, replica: Replica) -> None:
        stub = self._office.peers.rollout(replica.address)
        request = rollout_pb2.GetReplicaRequest()
        await call(stub.GetReplica, request, timeout_s=_MARGIN_S, what=f"{replica.replica_id} to answer")

    async def _verify(self, replica: Replica) -> None:
        canary: Canary = self._request.canary
        request = rollout_pb2.VerifyWeightsRequest(
            publication_id=self._id, canary=canary, deadline_s=self._times.verify_s
        )
        stub = self._office.peers.rollout(replica.address)
        timeout = self._times.verify_s + _MARGIN_S
        answer = await call(stub.VerifyWeights, request, timeout_s=timeout, what=f"{replica.replica_id} to verify")
        if not answer.equal:
            raise Miss(f"the canary's logprobs differ by {answer.gap:.2e}, {canary.tolerance:.1e} is allowed")

    async def _commit(self, replica: Replica) -> None:
        request = rollout_pb2.CommitWeightsRequest(publication_id=self._id)
        stub = self._office.peers.rollout(replica.address)
        seconds = self._times.commit_s
        await call(stub.CommitWeights, request, timeout_s=seconds, what=f"{replica.replica_id} to commit")
        self._office.registry.committed(replica.replica_id, self._version)
        self._office.events.append(
            "publication_committed",
            incarnation=self._version.incarnation,
            version=self._version.version,
            replica_id=replica.replica_id,
            digest=self._request.plan.weights_digest,
        )


async def _all_or_break_off(tasks: Sequence[asyncio.Task[None]]) -> list[BaseException | None]:
    """Waits for all; when one fails the sender (the first) is cancelled, which breaks the group up for the others."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if not all(task.done() for task in tasks):
            tasks[0].cancel()
            await asyncio.wait(tasks, timeout=_BREAK_OFF_S)
    finally:
        for task in tasks:
            task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return list(results)


def check_digests(plan: WeightPlan, digests: Sequence[str], who: str) -> None:
    """Raises ContractError (`bad_digest`) unless the digests of what arrived are those of the plan."""
    wanted = [bucket.digest for bucket in plan.buckets]
    if list(digests) != wanted:
        wrong = sum(1 for a, b in zip(digests, wanted, strict=False) if a != b) + abs(len(digests) - len(wanted))
        raise ContractError("bad_digest", f"{who}: {wrong} of {len(wanted)} buckets arrived damaged")
