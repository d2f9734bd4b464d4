"""One publication of one version to a snapshot of replicas, phase by phase; see docs/concepts.md."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.publication.calibration import judge
from headrace.services.orchestrator.publication.clients import Clients
from headrace.services.orchestrator.publication.collective_groups import CollectiveGroups, GroupRefusedError
from headrace.services.orchestrator.publication.progress import PublicationProgress
from headrace.services.orchestrator.publication.routes import DISK, Proved, Route, choose_route, disagreeing, proofs
from headrace.services.orchestrator.publication.transfer import TrainerAwayError, Transfer
from headrace.services.orchestrator.settings import PublicationTable
from headrace.services.orchestrator.state.registry import Registry, Replica
from headrace.services.orchestrator.state.run_state import RunState
from headrace.wire import tracing
from headrace.wire.contracts import PolicyVersion
from headrace.wire.contracts.digests import same_weights
from headrace.wire.errors import HeadraceError
from headrace.wire.peers.rpc import call
from headrace.wire.process.lifecycle import wait_for
from headrace.wire.rundir.events import EventLog
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1 import rollout_pb2
from headrace.wire.v1.message_pb2 import PolicyVersion as WireVersion

log = get_logger("orchestrator.publication")
_ABORT_S = 2.0
_ABORTS_TAKEN_S = 0.3
"""How long a publication waits at its end for aborts to be acknowledged; a frozen replica acknowledges none."""
_GRACE_S = 0.5
"""A phase ends this long after its deadline at the latest; peers report their own timeout before."""
_FIRST_VERIFY_S = 600.0
"""Upper bound on the time for a replica's first verification, whatever it requests: the trainer has a deadline for a
whole publication (`trainer.publish_timeout_s`)."""
_MARGIN_S = 4.0
"""A replica ends an update session by itself this long after the last phase's deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationContext:
    """Shared dependencies and state of all publications."""

    state: RunState
    registry: Registry
    clients: Clients
    groups: CollectiveGroups
    events: EventLog
    times: PublicationTable
    proved: dict[tuple[PolicyVersion, str], tuple[str, str]]
    """(version, layout) -> (checksum of the replicas that serve it, digest of its weights)."""
    aborts: set[asyncio.Task[None]]
    """Abort calls in progress, to replicas that were left out."""

    def route(self, replica: Replica) -> Route:
        """The route by which this replica gets the weights."""
        return choose_route(self.state.trainer.routes, replica.routes, distrust=replica.distrust)


class Miss(Exception):
    """A replica missed a phase; the others continue without it."""


class PublicationSession:
    """One publication of one version to a fixed set of members."""

    def __init__(self, context: PublicationContext, request: pb.PublishRequest, publication_id: str) -> None:
        self._context = context
        self._request = request
        self._id = publication_id
        self._times = context.times
        self._version = PolicyVersion(incarnation=request.incarnation, version=request.version)
        self._transfer = Transfer(
            context.state, context.clients, context.groups, request, publication_id, context.times
        )
        self._blameless: set[str] = set()
        """Replicas that missed a phase because the trainer was unavailable."""
        self._formats: dict[str, str] = {}
        self._proofs: dict[str, Proved] = {}
        self._gaps: dict[str, float] = {}
        """Replica -> largest difference of the canary's logprobs, nats."""
        self._damaged: dict[str, str] = {}
        """Replica -> description of its tensors that differ from the trainer's."""
        self._aborts: list[asyncio.Task[None]] = []
        self.progress = PublicationProgress(id=publication_id, version=self._version)
        self._missed = self.progress.missed

    async def run(self, members: Sequence[Replica]) -> list[pb.ReplicaOutcome]:
        """Runs all phases; returns one outcome per member."""
        names = self.progress.members = [replica.replica_id for replica in members]
        with tracing.span("publication", begins=True, version=str(self._version), replicas=names) as span:
            try:
                outcomes = await self._run(members)
            except asyncio.CancelledError:
                for name in set(names) - self.progress.committed:
                    self._missed.setdefault(name, "the publication was broken off")
                raise
            finally:
                if members:
                    timeline = self.progress.timeline(ended=True)
                    self._context.events.append("publication", **timeline.model_dump(exclude={"ended"}))
            span.set(missed=[outcome.replica_id for outcome in outcomes if not outcome.committed])
        return outcomes

    async def _run(self, members: Sequence[Replica]) -> list[pb.ReplicaOutcome]:
        holders = [replica for replica in members if self._holds(replica)]
        self.progress.committed.update(replica.replica_id for replica in holders)
        left = [replica for replica in members if replica not in holders]
        if left:
            times = self._times
            left = await self._phase("prepare", lambda _: times.prepare_s, left, self._prepare)
            left = await self._phase("transfer", lambda _: times.transfer_s, left, self._receive)
            left = await self._phase("verify", self._verify_s, left, self._verify)
            left = self._agree(left)
            left = await self._phase("commit", lambda _: times.commit_s, left, self._commit)
        if self._aborts:
            await asyncio.wait(self._aborts, timeout=_ABORTS_TAKEN_S)
        left += holders
        committed = {replica.replica_id for replica in left}
        log.info("published", version=str(self._version), committed=sorted(committed), missed=self._missed)
        return [
            pb.ReplicaOutcome(
                replica_id=replica.replica_id,
                committed=replica.replica_id in committed,
                reason=self._missed.get(replica.replica_id, ""),
                canary_gap=self._gaps.get(replica.replica_id),
            )
            for replica in members
        ]

    def _holds(self, replica: Replica) -> bool:
        """Whether the replica serves this version already: a repeated publication skips it."""
        return replica.version == self._version and replica.state == pb.REPLICA_STATE_SERVING

    def _verify_s(self, replica: Replica) -> float:
        """Deadline of the verify phase: an engine may need to compile kernels for its first verification."""
        return max(self._times.verify_s, min(replica.first_verify_s, _FIRST_VERIFY_S))

    async def _phase(
        self,
        name: str,
        deadline_s: Callable[[Replica], float],
        members: Sequence[Replica],
        act: Callable[[Replica], Awaitable[None]],
    ) -> list[Replica]:
        """Runs `act` on all members concurrently; returns those that met their deadlines, and aborts the others."""
        progress = self.progress
        longest = max(map(deadline_s, members), default=0.0)
        lasting = progress.begin(name, longest, [replica.replica_id for replica in members])

        async def one(replica: Replica) -> str:
            try:
                await wait_for(act(replica), deadline_s(replica) + _GRACE_S, replica.replica_id)
            except TrainerAwayError as error:
                self._blameless.add(replica.replica_id)
                return f"{name}: {error}"
            except (HeadraceError, Miss, RuntimeError) as error:
                return f"{name}: {error}"
            finally:
                progress.waiting_for.remove(replica.replica_id)
            return ""

        with tracing.span(name, replicas=list(progress.waiting_for)):
            reasons = await asyncio.gather(*(one(replica) for replica in members))
        late = [(replica, reason) for replica, reason in zip(members, reasons, strict=True) if reason]
        outcome = "missed" if late else "done"
        lasting.until = time.monotonic()
        metrics.PUBLICATION_SECONDS.labels(name, outcome).observe(lasting.until - lasting.since)
        for replica, reason in late:
            self._leave_out(replica, reason)
        return [replica for replica, reason in zip(members, reasons, strict=True) if not reason]

    def _leave_out(self, replica: Replica, reason: str, quarantine: str = "") -> None:
        """Records the miss and sends an abort in the background: a frozen replica must not delay the others."""
        log.warning("replica_missed_publication", replica=replica.replica_id, version=str(self._version), reason=reason)
        self._missed[replica.replica_id] = reason
        # A replica on the disk route that missed `prepare` has not failed by that route: keep it.
        no_change = replica.distrust and reason.startswith("prepare: ")
        if not no_change and replica.replica_id not in self._blameless:
            self._context.registry.missed(replica)
        abort = asyncio.create_task(self._abort(replica, quarantine))
        self._aborts.append(abort)
        self._context.aborts.add(abort)
        abort.add_done_callback(self._context.aborts.discard)

    async def _abort(self, replica: Replica, quarantine: str) -> None:
        request = rollout_pb2.AbortWeightsRequest(publication_id=self._id, quarantine=quarantine)
        try:
            stub = self._context.clients.rollout(replica.address)
            await call(stub.AbortWeights, request, timeout_s=_ABORT_S, what=f"{replica.replica_id} to abort")
        except (HeadraceError, RuntimeError):
            return  # The replica is gone, or will abort by its own deadline.

    async def _prepare(self, replica: Replica) -> None:
        times = self._times
        request = rollout_pb2.PrepareWeightsRequest(
            publication_id=self._id,
            version=WireVersion(incarnation=self._version.incarnation, version=self._version.version),
            plan=self._request.plan,
            deadline_s=times.prepare_s + times.transfer_s + self._verify_s(replica) + times.commit_s + _MARGIN_S,
            prepare_s=times.prepare_s,
        )
        stub = self._context.clients.rollout(replica.address)
        what = f"{replica.replica_id} to prepare"
        answer = await call(stub.PrepareWeights, request, timeout_s=times.prepare_s, what=what)
        if not answer.accepted:
            raise Miss(answer.reason)
        self._formats[replica.replica_id] = answer.checksum_format

    async def _receive(self, replica: Replica) -> None:
        route = Route(DISK) if self._request.disk_path else self._context.route(replica)
        try:
            await self._transfer_over(route, replica)
        except GroupRefusedError as refused:
            # The next publications leave it to the joiners, over the disk.
            self._context.registry.refuse(replica, str(refused))
            await self._transfer_over(Route(DISK, str(refused)), replica)

    async def _transfer_over(self, route: Route, replica: Replica) -> None:
        self.progress.routes[replica.replica_id] = route.backend
        if route.reason:
            self.progress.reasons[replica.replica_id] = route.reason
            log.info("route", replica=replica.replica_id, way=route.backend, reason=route.reason)
        await self._transfer.to(replica, route, checked_later=bool(self._formats[replica.replica_id]))

    async def _verify(self, replica: Replica) -> None:
        end = time.monotonic() + self._verify_s(replica)
        checksums = await self._transfer.checksums(replica, self._formats[replica.replica_id])
        deadline_s = self._verify_s(replica)
        request = rollout_pb2.VerifyWeightsRequest(
            publication_id=self._id, canary=self._request.canary, deadline_s=deadline_s, checksums=checksums
        )
        stub = self._context.clients.rollout(replica.address)
        timeout = deadline_s + _GRACE_S
        answer = await call(stub.VerifyWeights, request, timeout_s=timeout, what=f"{replica.replica_id} to verify")
        if not answer.equal:
            raise Miss(answer.reason or f"the canary's logprobs differ by {answer.gap:.2e}")
        self._gaps[replica.replica_id] = answer.gap
        self._proofs[replica.replica_id] = Proved(replica.replica_id, answer.layout, answer.checksum, answer.unknown)
        if answer.unhashed:
            self._note(replica, answer.unhashed)
        if answer.doubted:
            await self._try_table(replica, answer, max(end - time.monotonic(), _GRACE_S))

    async def _try_table(self, replica: Replica, answer: rollout_pb2.VerifyWeightsResponse, timeout_s: float) -> None:
        """Decides on tensors that differ from the trainer's table, which was never confirmed for this server."""
        name, folder, why_not = replica.replica_id, dict[str, str](), ""
        try:
            if answer.loaded_known:
                folder = await self._transfer.folder_checksums(self._formats[name], timeout_s)
        except (HeadraceError, RuntimeError) as error:
            why_not = str(error)
        found = judge(answer.doubted, folder, loaded_known=answer.loaded_known, why_not=why_not)
        if found.damaged:
            self._damaged[name] = found.words
        else:
            self._note(replica, found.words)

    def _note(self, replica: Replica, words: str) -> None:
        """Records why the replica's weights are not proven."""
        self.progress.note(replica.replica_id, words)
        log.warning("checksums_not_trusted", replica=replica.replica_id, version=str(self._version), reason=words)

    def _agree(self, members: list[Replica]) -> list[Replica]:
        """Leaves out replicas whose weights differ from the others of their layout; returns the rest."""
        names = [replica.replica_id for replica in members]
        found = [self._proofs[name] for name in names if name not in self._damaged]
        digest = self._request.plan.weights_digest
        known: dict[str, str] = {}
        stale: set[tuple[str, str]] = set()
        for (version, layout), (checksum, weights) in self._context.proved.items():
            if version == self._version:
                known[layout] = checksum
            elif same_weights(weights, digest) is False:
                stale.add((layout, checksum))
        wrong = self._damaged | disagreeing(found, known, stale)
        for replica in members:
            if replica.replica_id in wrong:
                reason = wrong[replica.replica_id]
                self._leave_out(replica, f"verify: {reason}", quarantine=reason)
        left = [replica for replica in members if replica.replica_id not in wrong]
        self.progress.proofs = proofs([self._proofs[replica.replica_id] for replica in left], known)
        return left

    async def _commit(self, replica: Replica) -> None:
        request = rollout_pb2.CommitWeightsRequest(publication_id=self._id)
        stub = self._context.clients.rollout(replica.address)
        seconds = self._times.commit_s
        await call(stub.CommitWeights, request, timeout_s=seconds, what=f"{replica.replica_id} to commit")
        proof, note = self.progress.proofs[replica.replica_id], self.progress.notes.get(replica.replica_id, "")
        self._context.registry.committed(replica, self._version, time.monotonic(), proof, note)
        self.progress.committed.add(replica.replica_id)
        self._remember(self._proofs[replica.replica_id])
        self._context.events.append(
            "publication_committed",
            incarnation=self._version.incarnation,
            version=self._version.version,
            replica_id=replica.replica_id,
            digest=self._request.plan.weights_digest,
            route=self.progress.routes.get(replica.replica_id, ""),
            proof=proof,
            proof_note=note,
        )

    def _remember(self, proof: Proved) -> None:
        """Keeps the checksums of the two newest versions: the older reveals replicas that kept their old weights."""
        proved = self._context.proved
        if proof.checksum:
            proved[self._version, proof.layout] = proof.checksum, self._request.plan.weights_digest
        newest = sorted({version for version, _ in proved})[-2:]
        for key in [key for key in proved if key[0] not in newest]:
            del proved[key]
