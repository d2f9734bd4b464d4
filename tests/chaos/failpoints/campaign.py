"""Runs whose services are killed at one failpoint after the other, until each that was reached has struck."""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.failpoints.armed_run import ArmedRun
from tests.chaos.failpoints.verdicts import lost_and_doubled

STEPS = 100
KILLS = 12
"""Failpoints that are armed in one run; a run ends with those that were not reached again still to do."""
AT_ONCE = 3
"""Runs at a time: each waits for its scorer and for restarts most of the time."""
_PASSES = (0, 0, 0, 1, 2, 5)
"""How often a point is passed before it strikes: one of these, drawn."""
_REACH_S = 4.0
"""A point that is not reached again in this time may be one of the service's start: the service is killed then."""
_START_S = 10.0
_PRELUDES = (
    *("trainer.stream.acked", "orchestrator.database.before_commit"),
    *("rollout.rpc.served.ReceiveWeights", "trainer.rpc.served.SendWeights"),
)
"""What else leads to a point that a start has not led to: groups that are in no stream and whose fates are not
reported, or not recorded; a replica and a trainer that die in a transfer, whose publication is missed, aborted and made
up for."""
OF_LOST_STREAMS = frozenset(
    {
        *("orchestrator.rpc.before_call.GetFatesRequest", "orchestrator.rpc.answered.GetFatesRequest"),
        "trainer.rpc.served.GetFates",
    }
)
"""Points of a call that groups in no stream cause: a broker that starts empty leads to them in each try, a prelude does
not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One kill at a failpoint."""

    name: str
    """SERVICE.POINT."""
    recovery_s: float
    """From the kill until two further steps were trained, or the run had ended."""


@dataclass(slots=True)
class Outcome:
    """What a struck run ended with."""

    strikes: list[Strike] = field(default_factory=list)
    plain_kills: int = 0
    reached: set[str] = field(default_factory=set)
    weights_sha256: str = ""
    lost: int = 0
    """Groups that were issued, and neither trained nor dropped nor open."""
    doubled: int = 0
    """Groups that were trained beyond those which were issued."""


def undisturbed(folder: Path, variant: str, *, steps: int = STEPS) -> Outcome:
    """A run in which nothing is killed: its weights, and the points that it reaches."""
    return _ended(ArmedRun(folder, variant, steps), [], random.Random(0), steps)


def struck(folder: Path, variant: str, names: list[str], draw: random.Random, *, steps: int = STEPS) -> Outcome:
    """A run that is killed at each of the points in order, as far as it reaches them."""
    return _ended(ArmedRun(folder, variant, steps), names, draw, steps)


def rounds(todo: set[str], draw: random.Random) -> Iterator[list[list[str]]]:
    """What the runs of a round are to be struck by, in drawn order; the caller takes out of `todo` what has struck."""
    while todo:
        names = sorted(todo)
        draw.shuffle(names)
        yield [part for index in range(AT_ONCE) if (part := names[index : AT_ONCE * KILLS : AT_ONCE])]


def _ended(armed: ArmedRun, names: list[str], draw: random.Random, steps: int) -> Outcome:
    outcome = Outcome()
    armed.start()
    try:
        for name in names:
            if not _strike(armed, name, draw, outcome, steps - 4):
                break
        armed.hurry()
        line = armed.run.finish()
    finally:
        armed.run.close()
    assert line["steps"] == steps
    done = {one.name for one in outcome.strikes}
    # Armed until the end: a point of the run's end, or one that a later kill has led to.
    outcome.strikes += [Strike(name=name, recovery_s=float("nan")) for name in armed.struck() if name not in done]
    outcome.reached = armed.reached()
    verdict = armed.run.check()
    outcome.weights_sha256 = verdict["weights_sha256"]
    outcome.lost, outcome.doubled = lost_and_doubled(verdict["groups"], steps)
    return outcome


def _strike(armed: ArmedRun, name: str, draw: random.Random, outcome: Outcome, last_step: int) -> bool:
    """Kills at one point, and waits until the run has recovered; False once the run is too near its end."""
    armed.wait_for_steps(1)
    if armed.run.steps() > last_step or not armed.lives:
        return False
    armed.arm(name, draw.choice(_PASSES))
    if not armed.wait_for(name, _REACH_S):
        armed.rearm(name)
        if name in OF_LOST_STREAMS:
            armed.lose_streams()
            armed.wait_for(name, _START_S)
        for prelude in (name, *_PRELUDES):
            if not armed.lives or armed.wait_for(name, 0.5):
                break
            if prelude != name:
                armed.arm(prelude, 0)
            else:
                armed.kill(name)
                outcome.plain_kills += 1
            armed.wait_for(prelude, _START_S)
            _recover(armed, outcome)
            armed.wait_for(name, _START_S)
    _recover(armed, outcome)
    return True


def _recover(armed: ArmedRun, outcome: Outcome) -> None:
    """Waits until the run has recovered from each kill since the last call."""
    for name in armed.struck().keys() - {one.name for one in outcome.strikes}:
        killed = armed.struck()[name]
        armed.wait_for_steps(2)
        outcome.strikes.append(Strike(name=name, recovery_s=time.time() - killed))
