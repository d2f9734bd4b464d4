"""Proves weights: what arrived by its digests, what is installed by the engine's checksums and the canary."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.services.rollout import metrics
from headrace.services.rollout.engines.protocol import Engine
from headrace.services.rollout.weights.session import UpdateSession
from headrace.services.rollout.weights.table_trust import TableTrust
from headrace.wire.contracts.arrays import floats_from_bytes, ids_from_bytes
from headrace.wire.errors import ContractError
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import common_pb2

log = get_logger("rollout.update")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallProof:
    """Result of verification."""

    equal: bool
    gap: float = float("inf")
    """Largest absolute difference of the canary's logprobs, nats."""
    reason: str = ""
    """Why verification failed; empty if it did not."""
    checksum: str = ""
    """Hex digest over the engine's checksums of all tensors; empty if it has none."""
    unknown: int = 0
    """Number of the engine's tensors that no checksum proves."""
    doubted: tuple[str, ...] = ()
    """Tensors that differ from the trainer's table, which has not been confirmed for this server."""
    unhashed: str = ""
    """Which tensors have no checksum, and why."""


class WeightProof:
    """Verifies the weights of one engine against the trainer's."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.table = TableTrust(engine.loaded_checksums)

    def has_arrived(self, session: UpdateSession) -> bool:
        """Whether what arrived has the plan's digests; an engine without digests is verified by its checksums."""
        if not session.received:
            return False
        if not session.digests and self._engine.checksum_format:
            return True
        return session.digests == [bucket.digest for bucket in session.plan.buckets]

    async def prove(
        self, canary: common_pb2.Canary, checksums: Sequence[common_pb2.TensorChecksum], deadline_s: float
    ) -> InstallProof:
        """Compares the installed weights with the trainer's. `checksums` are the expected ones, as far as known."""
        found, refused = await self._checksums(deadline_s)
        compared = self.table.compare(found, [] if refused else checksums)
        if compared.wrong:
            names = compared.differing
            return InstallProof(equal=False, reason=f"{len(names)} tensors are not the trainer's: {names[0]}, ...")
        gap = await self._gap(canary, deadline_s)
        metrics.CANARY_GAP.set(gap)
        if not gap <= canary.tolerance:
            reason = f"the canary's logprobs differ by {gap:.2e} nats, {canary.tolerance:.1e} is allowed"
            return InstallProof(equal=False, gap=gap, reason=reason)
        large = f"too large for the engine's checksum: {', '.join(compared.unhashed)}" if compared.unhashed else ""
        return InstallProof(
            equal=True,
            gap=gap,
            checksum=_overall(found),
            unknown=compared.unknown + bool(refused),
            doubted=compared.differing,
            unhashed=refused or large,
        )

    async def _checksums(self, deadline_s: float) -> tuple[Mapping[str, str], str]:
        """The engine's checksums, or why it has none: the weights are then unproven, but not rejected."""
        try:
            return await self._engine.checksums(deadline_s), ""
        except ContractError as error:
            log.warning("checksums_refused", reason=str(error))
            return {}, f"the engine has no checksums: {error}"

    async def _gap(self, canary: common_pb2.Canary, deadline_s: float) -> float:
        wanted = floats_from_bytes(canary.logprobs)
        found = await self._engine.score(ids_from_bytes(canary.token_ids), deadline_s)
        if wanted.shape != found.shape:
            raise ContractError("bad_canary", f"{len(wanted)} logprobs for {len(found)} tokens")
        return float(np.abs(wanted - found).max())


def _overall(checksums: Mapping[str, str]) -> str:
    if not checksums:
        return ""
    state = hashlib.sha256()
    for name in sorted(checksums):
        state.update(f"{name}={checksums[name]}\n".encode())
    return state.hexdigest()
