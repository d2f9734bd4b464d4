"""Reports a worker's episodes to the orchestrator, for people: what each waits for, and for how long."""

import asyncio
import time
from collections.abc import Callable, Sequence

from headrace.services.environment.player.in_hand import EpisodesInHand
from headrace.wire.access.roles import Role
from headrace.wire.errors import HeadraceError
from headrace.wire.peers.rpc import call, channel
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1.orchestrator_pb2_grpc import OrchestratorServiceStub

log = get_logger("environment.reporting")
_EVERY_S = 1.0
_ANSWER_S = 5.0


def report_of(
    in_hand: EpisodesInHand, *, run_id: str, worker_id: str, slots: int, notes: Sequence[str], now: float
) -> pb.ReportEpisodesRequest:
    """The report at a moment, `now` in monotonic seconds."""
    return pb.ReportEpisodesRequest(
        run_id=run_id,
        worker_id=worker_id,
        slots=slots,
        episodes=[
            pb.EpisodeInHand(
                id=state.rollout_id,
                group_index=group_index,
                kind=state.waits_kind,
                waits_for=state.waits_for,
                seconds=max(now - state.waits_since, 0.0),
            )
            for state, group_index in in_hand.all
        ],
        notes=notes,
    )


async def report_episodes(
    orchestrator: str,
    in_hand: EpisodesInHand,
    notes: Callable[[], Sequence[str]],
    *,
    run_id: str,
    worker_id: str,
    slots: int,
) -> None:
    """Reports about once a second. Runs until cancelled; a report that fails is logged, and the next one is tried."""
    away = False
    async with channel(orchestrator, Role.ORCHESTRATOR) as opened:
        stub = OrchestratorServiceStub(opened)
        while True:
            wait_s = _EVERY_S
            try:
                request = report_of(
                    in_hand, run_id=run_id, worker_id=worker_id, slots=slots, notes=notes(), now=time.monotonic()
                )
                answer = await call(
                    stub.ReportEpisodes, request, timeout_s=_ANSWER_S, what="the orchestrator to take a report"
                )
                wait_s, away = min(_EVERY_S, answer.lease_s / 3), False
            # Also an orchestrator that does not know the call: episodes are played whether they are seen or not.
            except (HeadraceError, RuntimeError, ValueError) as error:
                if not away:
                    log.warning("episodes_not_reported", error=str(error))
                away = True
            await asyncio.sleep(wait_s)
