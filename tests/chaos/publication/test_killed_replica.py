"""A replica dies by SIGKILL in each phase: the others serve the new version, and its next life comes back."""

import pytest

from tests.chaos.publication.stage import Stage
from tests.chaos.publication.strike import PHASES, Moment, Watch
from tests.variants import keep

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]
SERVING_S = 60


@pytest.mark.parametrize("phase", keep({"transfer"}, PHASES))
@pytest.mark.parametrize("members", [2, pytest.param(4, marks=pytest.mark.long)])
async def test_survivors_of_a_sigkill_serve_and_the_next_life_catches_up(
    stage: Stage, phase: str, members: int
) -> None:
    victim, *survivors = reversed(await stage.cast(members))
    version = stage.current.version + 1
    middle = members > 2 or phase == "transfer"
    Watch.moment = Moment(phase, version, lambda: stage.replicas.kill(victim), middle=middle, at=f"{victim}-")
    new = await stage.publish()
    assert Watch.moment.over
    await stage.replicas.serving(new, survivors, SERVING_S)
    outcome = stage.outcome(new, victim)
    if middle and phase != "transfer":
        # Its answer may have been out already.
        later = PHASES[PHASES.index(phase) :]
        assert outcome.committed if phase == "commit" and not outcome.reason else outcome.reason.startswith(later)
    else:
        assert outcome.reason.startswith(f"{phase}: "), outcome.reason
    await stage.traffic.some(20)
    stage.traffic.flows = False
    stage.replicas.start(victim)
    newer = await stage.publish()
    await stage.replicas.serving(newer, survivors, SERVING_S)
    await stage.replicas.serving(newer, [victim], SERVING_S)
    stage.traffic.check()
    assert stage.traffic.looked_at
