"""The orchestrator gives the trainer its turn when all that runs on the published weights has ended."""

import time
from pathlib import Path
from typing import Any

import pytest

from headrace.services.orchestrator.publication.gpu_turns import TurnScheduler
from headrace.services.orchestrator.publication.joiners import Joiners
from headrace.wire.contracts import PolicyVersion
from headrace.wire.errors import FencedError
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.v1 import rollout_pb2
from tests.unit.services.orchestrator.issuing.test_issuer import Office
from tests.unit.services.orchestrator.publication_world import ScriptedReplica, World, world
from tests.unit.services.orchestrator.test_run import run_of, trainer


class Sleeper(ScriptedReplica):
    """A replica that can be put to sleep; `sleep` of its script says otherwise."""

    async def Sleep(self, request: Any, context: Any) -> Any:
        await self._do("sleep")
        reason = self.script.get("reason", "")
        return rollout_pb2.SleepResponse(asleep=not reason, reason=reason)


def states(it: World) -> dict[str, int]:
    return {one.replica_id: one.state for one in it.registry.alive(time.monotonic())}


def turns_of(it: World, evaluating: str = "") -> TurnScheduler:
    return TurnScheduler(it.registry, it.publisher, it.clients, lambda: evaluating)


async def test_all_replicas_sleep_before_the_turn_is_given(tmp_path: Path) -> None:
    async with world(tmp_path, Sleeper("r0"), Sleeper("r1")) as it:
        turns = turns_of(it)
        assert await turns.take() == ""
        assert set(states(it).values()) == {pb.REPLICA_STATE_SLEEPING}
        assert await turns.take() == ""
        assert turns.trainer_has
        turns.over()
        assert not turns.trainer_has


async def test_a_trainer_turn_waits_for_the_evaluation_of_the_published_version(tmp_path: Path) -> None:
    sleeper = Sleeper("r0")
    async with world(tmp_path, sleeper) as it:
        said = ["evaluation of version 3: 1 of 8 prompts"]
        turns = TurnScheduler(it.registry, it.publisher, it.clients, lambda: said[0])
        assert await turns.take() == said[0]
        assert sleeper.calls == []
        said[0] = ""
        assert await turns.take() == ""


async def test_a_replica_that_stays_awake_is_named_with_its_reason_and_asked_once(tmp_path: Path) -> None:
    late, busy = Sleeper("r0", sleep="wait"), Sleeper("r1", reason="the replica is updating")
    async with world(tmp_path, late, busy) as it:
        turns = turns_of(it)
        assert await turns.take() == "r0 to sleep, r1 to sleep (the replica is updating)"
        assert await turns.take() == "r0 to sleep, r1 to sleep (the replica is updating)"
        assert late.calls == ["sleep"]
        late.go_on.set()
        busy.script.clear()
        assert await turns.take() == ""


async def test_a_running_publication_ends_before_the_turn_and_wakes_sleepers(tmp_path: Path) -> None:
    sleeper = Sleeper("r0")
    async with world(tmp_path, sleeper) as it:
        turns = turns_of(it)
        await turns.take()
        response = await it.publisher.publish(it.request())
        assert [one.committed for one in response.outcomes] == [True]
        assert states(it) == {"r0": pb.REPLICA_STATE_SERVING}
        it.publisher.progress = object()  # type: ignore[assignment]
        assert await turns.take() == "the publication to end"


async def test_joining_replicas_wake_no_sleeper_during_the_trainers_turn(tmp_path: Path) -> None:
    async with world(tmp_path, Sleeper("r0")) as it:
        turns = turns_of(it)
        await turns.take()
        joiners = Joiners(it.state, it.registry, it.publisher, lambda: not turns.trainer_has)
        current = PolicyVersion(incarnation=1, version=3)
        assert joiners._behind(current) == []
        turns.over()
        assert [one.replica_id for one in joiners._behind(current)] == ["r0"]


async def test_turns_fence_ended_trainer_lives_and_accept_an_unregistered_one(tmp_path: Path) -> None:
    run = run_of(Office(tmp_path))
    ended: list[int] = []
    run.publisher.supersede = lambda: ended.append(1)  # type: ignore[method-assign]
    assert await run.take_turn(0) == ""
    assert ended == [1]  # What the life before was publishing would hold its replicas awake.
    await run.register_trainer(trainer("t1"))
    await run.register_trainer(trainer("t2"))
    assert await run.take_turn(2) == ""
    with pytest.raises(FencedError):
        await run.take_turn(1)
    assert len(ended) == 3  # Twice by a registration.
    await run.report(pb.ReportProgressRequest(incarnation=2, has_turn=False))
    assert not run.turns.trainer_has
    await run.report(pb.ReportProgressRequest(incarnation=2, has_turn=True))
    assert run.turns.trainer_has
