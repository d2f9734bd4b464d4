"""Update sessions: publications on the replica's side. See docs/concepts.md.

prepare closes the gate and opens the session; receive transfers the weights; verify installs them and proves them by
digests or checksums and by the canary; commit sets the version and opens the gate. While the old weights are intact
(until verify, or until receive for an engine that receives in place), a failure leaves the replica as it was. After
that, an abort ends in PENDING_WEIGHTS, a failed proof in QUARANTINED, and running groups are handed back.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from headrace.services.rollout import metrics
from headrace.services.rollout.engine_metrics import timed
from headrace.services.rollout.engines.protocol import Engine
from headrace.services.rollout.replica.gate import Gate, Serving
from headrace.services.rollout.replica.states import PUBLISHABLE, ReplicaState
from headrace.services.rollout.weights.proof import InstallProof, WeightProof
from headrace.services.rollout.weights.session import UpdateSession
from headrace.wire.contracts import PolicyVersion
from headrace.wire.contracts.codec import VERSION
from headrace.wire.errors import ContractError, FencedError, HeadraceError
from headrace.wire.rundir.events import EventLog
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import common_pb2, orchestrator_pb2, rollout_pb2

log = get_logger("rollout.update")


async def _is_awake(timeout_s: float) -> None:
    """Default `wake`, for an engine that never sleeps."""


class Updates:
    """Runs update sessions, at most one at a time."""

    def __init__(
        self,
        engine: Engine,
        gate: Gate,
        events: EventLog,
        *,
        engine_timeout_s: float,
        wake: Callable[[float], Awaitable[None]] = _is_awake,
    ) -> None:
        """`wake(timeout_s)` wakes a sleeping engine; a no-op for one that is awake."""
        self._engine = engine
        self._wake = wake
        self._gate = gate
        self._events = events
        self._engine_timeout_s = engine_timeout_s
        self._session: UpdateSession | None = None
        self._incarnation = 0
        self._last_committed = ""
        self._proof = WeightProof(engine)
        self.table = self._proof.table
        self._background: set[asyncio.Task[None]] = set()

    async def prepare(
        self,
        publication_id: str,
        version: PolicyVersion,
        plan: common_pb2.WeightPlan,
        deadline_s: float,
        *,
        prepare_s: float = 0.0,
    ) -> str:
        """Opens a session that expires after `deadline_s`; returns why it cannot, or an empty string.

        The engine must get ready within `prepare_s` seconds (0: within `engine_timeout_s`).

        Aborts an open session of another publication. Raises FencedError for an incarnation that is over.
        """
        if version.incarnation < self._incarnation:
            raise FencedError(f"incarnation {version.incarnation} is over, {self._incarnation} has begun")
        if self._session is not None:
            await self._close(self._session, "another publication began")
        if self._gate.state is ReplicaState.UPDATING:
            # An earlier session failed to end, such as because of a full disk: the weights are unknown.
            self._gate.disown(ReplicaState.PENDING_WEIGHTS, "an update did not end")
        if self._gate.state not in PUBLISHABLE:
            return f"the replica is {self._gate.state}"
        serving = self._gate.serving
        if serving is not None and serving.version > version:
            return f"the replica serves {serving.version}, which is newer"
        self._incarnation = version.incarnation
        loop = asyncio.get_running_loop()
        self._session = UpdateSession(
            publication_id=publication_id,
            version=version,
            plan=plan,
            came_from=self._gate.state,
            expiry=loop.call_later(deadline_s, self._expire, publication_id),
        )
        self._gate.move(ReplicaState.UPDATING, f"publication {version}: prepared")
        limit_s = self._engine_timeout_s
        return await self._make_ready(self._session, min(limit_s, prepare_s) if prepare_s > 0 else limit_s)

    async def _make_ready(self, session: UpdateSession, timeout_s: float) -> str:
        try:
            with timed("prepare"):
                end = time.monotonic() + timeout_s
                await self._wake(timeout_s)
                await self._engine.prepare(session.version, session.plan, max(end - time.monotonic(), 0.001))
        except HeadraceError as error:
            await self._close(session, f"the engine did not get ready: {error}")
            return f"the engine did not get ready: {error}"
        return "" if self._session is session else "another publication began"

    async def receive(self, request: rollout_pb2.ReceiveWeightsRequest) -> list[str]:
        """Receives the weights; returns the digests of the received buckets. May be called again after a failure."""
        session = self._require(request.publication_id)
        session.digests, session.received = [], False
        session.installed = session.installed or self._engine.in_place
        with timed("receive"):
            digests = await self._engine.receive(session.plan, request, request.deadline_s)
        route = request.collective.backend or "disk"
        metrics.RECEIVED_BYTES.labels(route).inc(sum(bucket.size_bytes for bucket in session.plan.buckets))
        self._require(request.publication_id)
        session.digests, session.received = digests, True
        return digests

    async def verify(
        self,
        publication_id: str,
        canary: common_pb2.Canary,
        checksums: Sequence[common_pb2.TensorChecksum],
        deadline_s: float,
    ) -> InstallProof:
        """Installs and verifies the received weights. `checksums` are the expected ones, as far as known.

        If verification fails, the replica is quarantined and running groups are handed back.
        """
        session = self._require(publication_id)
        async with session.swap:
            self._require(publication_id)
            with timed("verify"):
                return await self._prove(session, canary, checksums, deadline_s)

    async def _prove(
        self,
        session: UpdateSession,
        canary: common_pb2.Canary,
        checksums: Sequence[common_pb2.TensorChecksum],
        deadline_s: float,
    ) -> InstallProof:
        if not self._proof.has_arrived(session):
            return await self._quarantine(session, "what arrived does not have the digests of the plan")
        # If the installation is interrupted, it is unknown which weights are in place.
        before, session.installed = session.installed, True
        try:
            await self._engine.install(session.version, session.plan.weights_digest, deadline_s)
        except ContractError:
            # Refused before anything was touched, which an earlier call may have done, or a transfer in place.
            session.installed = before or self._engine.in_place
            raise
        proof = await self._proof.prove(canary, checksums, deadline_s)
        if not proof.equal:
            return await self._quarantine(session, proof.reason, proof.gap)
        session.verified = True
        return proof

    async def commit(self, publication_id: str) -> None:
        """Starts serving the verified weights. Idempotent."""
        if publication_id == self._last_committed:
            return
        session = self._require(publication_id)
        async with session.swap:
            self._require(publication_id)
            if not session.verified:
                raise ContractError("not_verified", f"{publication_id} was not verified")
            await self._engine.resume(self._engine_timeout_s)
            digest = session.plan.weights_digest
            self._events.append(
                "weights_committed",
                incarnation=session.version.incarnation,
                version=session.version.version,
                digest=digest,
            )
            self._forget(session)
            self._last_committed = publication_id
            self._gate.commit(Serving(session.version, digest))
            metrics.UPDATES.labels("committed").inc()
            log.info("weights_committed", version=str(session.version), digest=digest)

    async def abort(self, publication_id: str, quarantine: str = "") -> None:
        """Aborts the session, if it is still open. `quarantine`: why its weights are bad."""
        session = self._session
        if session is None or session.publication_id != publication_id:
            return
        if quarantine and session.installed:
            async with session.swap:
                if self._session is session:
                    await self._quarantine(session, quarantine)
        else:
            await self._close(session, "aborted by the orchestrator")

    async def take_word(self, answer: orchestrator_pb2.HeartbeatResponse) -> None:
        """Acts on the orchestrator's answer to a heartbeat.

        Weights that were never published are disowned, and a fence above the incarnations that there are is lowered: a
        publication that nothing real has begun must not keep out those that follow.
        """
        if answer.HasField("disown"):
            version = VERSION.from_pb(answer.disown)
            await self._disown_served(version, answer.disown_reason)
        if answer.incarnation and self._session is None:
            self._incarnation = min(self._incarnation, answer.incarnation)

    async def _disown_served(self, version: PolicyVersion, reason: str) -> None:
        # What was committed meanwhile is not what the orchestrator has judged.
        if self._session is not None and self._gate.version == version:
            await self._close(self._session, reason)
        if self._gate.version == version and self._gate.state in PUBLISHABLE:
            log.error("weights_disowned", version=str(version), reason=reason)
            metrics.UPDATES.labels("disowned").inc()
            self._last_committed = ""
            await self._disown(ReplicaState.QUARANTINED, reason)

    def leave(self) -> None:
        """Drops the session, since the replica is shutting down."""
        if self._session is not None:
            self._forget(self._session)

    def _require(self, publication_id: str) -> UpdateSession:
        session = self._session
        if session is None or session.publication_id != publication_id:
            raise ContractError("no_session", f"there is no open update session {publication_id!r}")
        return session

    async def _close(self, session: UpdateSession, reason: str) -> None:
        """Ends a session without a commit, in the state that its progress allows."""
        async with session.swap:
            if self._session is not session:
                return
            self._forget(session)
            await self._engine.discard()
            log.warning("update_given_up", version=str(session.version), reason=reason, installed=session.installed)
            metrics.UPDATES.labels("aborted").inc()
            if session.installed:
                reason = f"publication {session.version} was given up: {reason}"
                await self._disown(ReplicaState.PENDING_WEIGHTS, reason)
            elif session.came_from is ReplicaState.SERVING:
                self._gate.move(ReplicaState.SERVING)
            else:
                self._gate.move(ReplicaState.PENDING_WEIGHTS, f"publication {session.version} was given up: {reason}")

    async def _quarantine(self, session: UpdateSession, reason: str, gap: float = float("inf")) -> InstallProof:
        self._forget(session)
        await self._engine.discard()
        log.error("quarantined", version=str(session.version), reason=reason)
        metrics.UPDATES.labels("quarantined").inc()
        await self._disown(ReplicaState.QUARANTINED, reason)
        return InstallProof(equal=False, gap=gap, reason=reason)

    async def _disown(self, target: ReplicaState, reason: str) -> None:
        """Stops serving until the next commit; running groups are handed back."""
        self._gate.disown(target, reason)
        await self._engine.abandon(reason, self._engine_timeout_s)
        await self._engine.resume(self._engine_timeout_s)

    def _forget(self, session: UpdateSession) -> None:
        session.expiry.cancel()
        if self._session is session:
            self._session = None

    def _expire(self, publication_id: str) -> None:
        session = self._session
        if session is None or session.publication_id != publication_id:
            return
        task = asyncio.ensure_future(self._close(session, "its deadline passed"))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
