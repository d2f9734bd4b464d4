"""A replica is frozen by SIGSTOP in each phase: nobody waits for it beyond the deadline, and thawed it catches up."""

import asyncio
import time

import pytest

from tests.chaos.publication.stage import TIMES, Stage
from tests.chaos.publication.strike import PHASES, Moment, Watch

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
SLACK_S = 1.5
"""For what the phases take on a busy machine."""
DEADLINES = {phase: getattr(TIMES, f"{phase}_s") for phase in PHASES}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("members", [2, 4])
async def test_the_trainer_waits_no_longer_than_the_deadline_and_the_thawed_one_comes_back_over_the_disk(
    stage: Stage, phase: str, members: int
) -> None:
    victim, *others = reversed(await stage.cast(members))
    before, usual = await stage.publish()
    version = before.version + 1
    middle = members > 2 and phase == "transfer"
    Watch.moment = Moment(phase, version, lambda: stage.replicas.freeze(victim), middle=middle, at=f"{victim}-")
    new, waited = await stage.publish()
    try:
        assert Watch.moment.over
        assert DEADLINES[phase] <= waited <= DEADLINES[phase] + usual + SLACK_S
        await stage.replicas.serving(new, others, SLACK_S)
        assert stage.outcome(new, victim).reason.startswith(f"{phase}: ")
    finally:
        stage.replicas.thaw(victim)
    thawed = time.time()
    await stage.replicas.serving(new, [victim], 20)
    # Also the step after it finds everybody there.
    newer, waited = await stage.publish()
    await stage.replicas.serving(newer, [victim, *others], 5)
    assert waited <= usual + SLACK_S
    assert stage.replicas.routes(victim, new) == ["disk"]
    assert all(at >= thawed for (held, _), at in stage.replicas.committed()[victim].items() if held == new)
    stage.traffic.check()


async def test_one_that_stays_frozen_over_several_publications_delays_each_of_them_by_no_more_than_a_deadline(
    stage: Stage,
) -> None:
    victim, other = reversed(await stage.cast(2))
    stage.replicas.freeze(victim)
    try:
        for _ in range(3):
            new, waited = await stage.publish()
            assert waited <= TIMES.prepare_s + SLACK_S
            await stage.replicas.serving(new, [other], SLACK_S)
            await asyncio.sleep(0.5)
    finally:
        stage.replicas.thaw(victim)
    await stage.replicas.serving(new, [victim], 20)
    stage.traffic.check()
    assert stage.traffic.looked_at
