"""The update session: one publication as this replica lives it. See docs/architecture.md.

prepare closes the gate and opens the session; receive brings the weights in; verify makes them whole and proves them by
digests or checksums and by the canary; commit sets the version and opens the gate. As long as the old weights are whole
(until verify, or until receive for an engine that receives in place), whatever fails leaves the replica as it was.
After that they are gone: an abort ends in PENDING_WEIGHTS, a failed proof in QUARANTINED, and running groups are handed
back.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from services.rollout import metrics
from services.rollout.engines.protocol import Engine
from services.rollout.gate import Gate, Serving
from services.rollout.meter import timed
from services.rollout.replica import PUBLISHABLE, ReplicaState
from services.rollout.table_trust import TableTrust
from wire.contracts import PolicyVersion
from wire.contracts.arrays import floats_from_bytes, ids_from_bytes
from wire.errors import ContractError, FencedError, HeadraceError
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
    received: bool = False
    installed: bool = False
    """The weights in place are no longer those of before."""
    verified: bool = False
    swap: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while weights in place are touched: nobody ends the session meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What verification found."""

    equal: bool
    gap: float = float("inf")
    """Largest absolute difference of the canary's logprobs, nats."""
    reason: str = ""
    """Why not equal."""
    checksum: str = ""
    """Hex, over all tensors as the engine keeps them; empty if it has none."""
    unknown: int = 0
    """Tensors of the engine whose checksum nobody could tell it."""
    doubted: tuple[str, ...] = ()
    """Tensors that differ from what the trainer says, which was never right for this server before."""
    unhashed: str = ""
    """What has no checksum, and why."""


async def _is_awake(timeout_s: float) -> None:
    """An engine that never sleeps."""


class Updates:
    """Opens, carries and closes sessions; there is at most one."""

    def __init__(
        self,
        engine: Engine,
        gate: Gate,
        events: EventLog,
        *,
        engine_timeout_s: float,
        wake: Callable[[float], Awaitable[None]] = _is_awake,
    ) -> None:
        """`wake` wakes an engine that sleeps, within some seconds."""
        self._engine = engine
        self._wake = wake
        self._gate = gate
        self._events = events
        self._engine_timeout_s = engine_timeout_s
        self._session: Session | None = None
        self._incarnation = 0
        self._last_committed = ""
        self.table = TableTrust(engine.loaded_checksums)
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
        """Opens a session that ends by itself after `deadline_s`; returns why not, or an empty string.

        The engine gets ready within `prepare_s` (0: within its own time).

        An open session of another publication is aborted. Raises FencedError for an incarnation that is over.
        """
        if version.incarnation < self._incarnation:
            raise FencedError(f"incarnation {version.incarnation} is over, {self._incarnation} has begun")
        if self._session is not None:
            await self._close(self._session, "another publication began")
        if self._gate.state is ReplicaState.UPDATING:
            # A session that could not be ended, say by a full disk: nothing is known of the weights.
            self._gate.disown(ReplicaState.PENDING_WEIGHTS, "an update did not end")
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
        limit_s = self._engine_timeout_s
        return await self._make_ready(self._session, min(limit_s, prepare_s) if prepare_s > 0 else limit_s)

    async def _make_ready(self, session: Session, timeout_s: float) -> str:
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
        """Stages the weights; returns the digests of what arrived. May be called again after a failure."""
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
    ) -> Proof:
        """Installs what was received and proves it. `checksums` are what the engine's own must be, as far as known.

        What does not prove itself is quarantined, and running groups are handed back.
        """
        session = self._require(publication_id)
        async with session.swap:
            self._require(publication_id)
            with timed("verify"):
                return await self._prove(session, canary, checksums, deadline_s)

    async def _prove(
        self,
        session: Session,
        canary: common_pb2.Canary,
        checksums: Sequence[common_pb2.TensorChecksum],
        deadline_s: float,
    ) -> Proof:
        if not session.received or not self._digests_hold(session):
            return await self._quarantine(session, "what arrived does not have the digests of the plan")
        # Whatever interrupts the installation: which weights are in place is unknown from here on.
        session.installed = True
        try:
            await self._engine.install(session.version, session.plan.weights_digest, deadline_s)
        except ContractError:
            # Refused before anything was touched, unless the weights were received in place.
            session.installed = self._engine.in_place
            raise
        found, refused = await self._checksums(deadline_s)
        compared = self.table.compare(found, [] if refused else checksums)
        if compared.wrong:
            names = compared.differing
            return await self._quarantine(session, f"{len(names)} tensors are not the trainer's: {names[0]}, ...")
        gap = await self._gap(canary, deadline_s)
        metrics.CANARY_GAP.set(gap)
        if not gap <= canary.tolerance:
            reason = f"the canary's logprobs differ by {gap:.2e} nats, {canary.tolerance:.1e} is allowed"
            return await self._quarantine(session, reason, gap)
        session.verified = True
        large = f"too large for the engine's checksum: {', '.join(compared.unhashed)}" if compared.unhashed else ""
        return Proof(
            equal=True,
            gap=gap,
            checksum=_overall(found),
            unknown=compared.unknown + bool(refused),
            doubted=compared.differing,
            unhashed=refused or large,
        )

    async def _checksums(self, deadline_s: float) -> tuple[Mapping[str, str], str]:
        """Those of the engine, or why it has none: that costs the proof, not the weights."""
        try:
            return await self._engine.checksums(deadline_s), ""
        except ContractError as error:
            log.warning("checksums_refused", reason=str(error))
            return {}, f"the engine has no checksums: {error}"

    def _digests_hold(self, session: Session) -> bool:
        """An engine that cannot tell what arrived is proved by its checksums in place."""
        if not session.digests and self._engine.checksum_format:
            return True
        return session.digests == [bucket.digest for bucket in session.plan.buckets]

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
        """Gives the session up; one that is over already is left alone. `quarantine`: why its weights are bad."""
        session = self._session
        if session is None or session.publication_id != publication_id:
            return
        if quarantine and session.installed:
            async with session.swap:
                if self._session is session:
                    await self._quarantine(session, quarantine)
        else:
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

    async def _quarantine(self, session: Session, reason: str, gap: float = float("inf")) -> Proof:
        self._forget(session)
        await self._engine.discard()
        log.error("quarantined", version=str(session.version), reason=reason)
        metrics.UPDATES.labels("quarantined").inc()
        await self._disown(ReplicaState.QUARANTINED, reason)
        return Proof(equal=False, gap=gap, reason=reason)

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


def _overall(checksums: Mapping[str, str]) -> str:
    if not checksums:
        return ""
    state = hashlib.sha256()
    for name in sorted(checksums):
        state.update(f"{name}={checksums[name]}\n".encode())
    return state.hexdigest()
