"""The update session: one publication as this replica lives it. See docs/architecture.md.

prepare closes the gate and opens the session; receive stages weights beside those in place, while the engine decodes
on; verify installs them (the engine pauses) and asks the canary; commit sets the version and opens the gate. Until
verify the old weights are whole, so whatever fails leaves the replica as it was. After it they are gone: an abort ends
in PENDING_WEIGHTS, a failed proof in QUARANTINED, and running groups are handed back.
"""

import asyncio
import time
from dataclasses import dataclass, field

import numpy as np

from services.rollout import metrics
from services.rollout.engines.protocol import Engine
from services.rollout.gate import Gate, Serving
from services.rollout.replica import PUBLISHABLE, ReplicaState
from wire.contracts import PolicyVersion
from wire.contracts.codec import floats_from_bytes, ids_from_bytes
from wire.errors import ContractError, FencedError
from wire.events import EventLog
from wire.telemetry import get_logger
from wire.v1 import common_pb2, rollout_pb2

log = get_logger("rollout.update")


@dataclass(slots=True, eq=False)
class Session:
    """One publication in progress."""

    publication_id: str
    version: PolicyVersion
    plan: common_pb2.WeightPlan
    came_from: ReplicaState
    expiry: asyncio.TimerHandle
    digests: list[str] = field(default_factory=list)
    installed: bool = False
    verified: bool = False
    swap: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while weights in place are touched: nobody ends the session meanwhile."""


class Updates:
    """Opens, carries and closes sessions; there is at most one."""

    def __init__(self, engine: Engine, gate: Gate, events: EventLog, *, engine_timeout_s: float) -> None:
        self._engine = engine
        self._gate = gate
        self._events = events
        self._engine_timeout_s = engine_timeout_s
        self._session: Session | None = None
        self._incarnation = 0
        self._last_committed = ""
        self._background: set[asyncio.Task[None]] = set()

    async def prepare(
        self, publication_id: str, version: PolicyVersion, plan: common_pb2.WeightPlan, deadline_s: float
    ) -> str:
        """Opens a session that ends by itself after `deadline_s`; returns why not, or an empty string.

        An open session of another publication is aborted. Raises FencedError for an incarnation that is over.
        """
        if version.incarnation < self._incarnation:
            raise FencedError(f"incarnation {version.incarnation} is over, {self._incarnation} has begun")
        if self._session is not None:
            await self._close(self._session, "another publication began")
        if self._gate.state not in PUBLISHABLE:
            return f"the replica is {self._gate.state}"
        serving = self._gate.serving
        if serving is not None and serving.version > version:
            return f"the replica serves {serving.version}, which is newer"
        self._incarnation = version.incarnation
        loop = asyncio.get_running_loop()
        self._session = Session(
            publication_id=publication_id,
            version=version,
            plan=plan,
            came_from=self._gate.state,
            expiry=loop.call_later(deadline_s, self._expire, publication_id),
        )
        self._gate.move(ReplicaState.UPDATING, f"publication {version}: prepared")
        return ""

    async def receive(self, request: rollout_pb2.ReceiveWeightsRequest) -> list[str]:
        """Stages the weights; returns the digests of what arrived. May be called again after a failure."""
        session = self._require(request.publication_id)
        begin = time.perf_counter()
        session.digests = []
        digests = await self._engine.receive(session.plan, request, request.deadline_s)
        self._require(request.publication_id)
        session.digests = digests
        metrics.PHASE_SECONDS.labels("receive").observe(time.perf_counter() - begin)
        return digests

    async def verify(self, publication_id: str, canary: common_pb2.Canary, deadline_s: float) -> tuple[bool, float]:
        """Installs what was received and proves it; returns (equal, largest difference in nats).

        What does not prove itself is quarantined, and running groups are handed back.
        """
        session = self._require(publication_id)
        async with session.swap:
            self._require(publication_id)
            begin = time.perf_counter()
            if session.digests != [bucket.digest for bucket in session.plan.buckets]:
                await self._quarantine(session, "what arrived does not have the digests of the plan")
                return False, float("inf")
            # Whatever interrupts the installation: which weights are in place is unknown from here on.
            session.installed = True
            try:
                await self._engine.install(session.version, session.plan.weights_digest, deadline_s)
            except ContractError:
                session.installed = False
                raise
            gap = await self._gap(canary, deadline_s)
            metrics.PHASE_SECONDS.labels("verify").observe(time.perf_counter() - begin)
            if not gap <= canary.tolerance:
                await self._quarantine(session, f"the canary's logprobs differ by {gap:.2e} nats")
                return False, gap
            session.verified = True
            return True, gap

    async def commit(self, publication_id: str) -> None:
        """Serves with the verified weights. A repeated commit changes nothing."""
        if publication_id == self._last_committed:
            return
        session = self._require(publication_id)
        async with session.swap:
            self._require(publication_id)
            if not session.verified:
                raise ContractError("not_verified", f"{publication_id} was not verified")
            await self._engine.resume(self._engine_timeout_s)
            self._forget(session)
            digest = session.plan.weights_digest
            self._last_committed = publication_id
            self._events.append(
                "weights_committed",
                incarnation=session.version.incarnation,
                version=session.version.version,
                digest=digest,
            )
            self._gate.commit(Serving(session.version, digest))
            metrics.UPDATES.labels("committed").inc()
            log.info("weights_committed", version=str(session.version), digest=digest)

    async def abort(self, publication_id: str) -> None:
        """Gives the session up; one that is over already is left alone."""
        session = self._session
        if session is not None and session.publication_id == publication_id:
            await self._close(session, "aborted by the orchestrator")

    def leave(self) -> None:
        """The replica is on its way out: no session outlives it."""
        if self._session is not None:
            self._forget(self._session)

    def _require(self, publication_id: str) -> Session:
        session = self._session
        if session is None or session.publication_id != publication_id:
            raise ContractError("no_session", f"there is no open update session {publication_id!r}")
        return session

    async def _gap(self, canary: common_pb2.Canary, deadline_s: float) -> float:
        wanted = floats_from_bytes(canary.logprobs)
        found = await self._engine.score(ids_from_bytes(canary.token_ids), deadline_s)
        if wanted.shape != found.shape:
            raise ContractError("bad_canary", f"{len(wanted)} logprobs for {len(found)} tokens")
        return float(np.abs(wanted - found).max())

    async def _close(self, session: Session, reason: str) -> None:
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

    async def _quarantine(self, session: Session, reason: str) -> None:
        self._forget(session)
        await self._engine.discard()
        log.error("quarantined", version=str(session.version), reason=reason)
        metrics.UPDATES.labels("quarantined").inc()
        await self._disown(ReplicaState.QUARANTINED, reason)

    async def _disown(self, target: ReplicaState, reason: str) -> None:
        """No weights serve any more; running groups are handed back."""
        self._gate.disown(target, reason)
        await self._engine.abandon(reason, self._engine_timeout_s)
        await self._engine.resume(self._engine_timeout_s)

    def _forget(self, session: Session) -> None:
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
