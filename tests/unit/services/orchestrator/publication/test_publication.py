"""The coordinator against replicas that answer, lie, stall and die, over real gRPC."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.services.orchestrator.publication.joiners import Joiners
from headrace.services.orchestrator.run import Orchestrator
from headrace.services.orchestrator.state.run_state import RunState
from headrace.services.orchestrator.state.store import Store
from headrace.wire.errors import FencedError
from headrace.wire.rundir.events import read_events
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.unit.services.orchestrator.publication_world import (
    GLOO,
    ScriptedReplica,
    committed,
    world,
)
from tests.waiting import until_async

DEADLINE = re.compile(r"Deadline Exceeded|waited 2\.5 s")
"""What ends a wait of two seconds: gRPC, or the phase half a second later."""


async def test_all_phases_in_order_and_the_commit_is_an_event(tmp_path: Path) -> None:
    one, two = ScriptedReplica("a"), ScriptedReplica("b")
    async with world(tmp_path, one, two) as it:
        response = await it.publisher.publish(it.request())
        assert committed(response) == {"a": True, "b": True}
        assert [outcome.canary_gap for outcome in response.outcomes] == [0.5, 0.5]
        assert one.calls == two.calls == ["prepare", "receive", "verify", "commit"]
        assert it.trainer.sizes == [2, 2]
        assert [r.groups[0].rank for r in (one, two)] == [1, 1]
        assert one.groups[0].name != two.groups[0].name
        assert it.registry.alive(time.monotonic())[0].version.version == 3
        events = [event for event in read_events(tmp_path) if event["event"] == "publication_committed"]
        assert {event["replica_id"]: event["digest"] for event in events} == {"a": "ww", "b": "ww"}


async def test_a_publication_leaves_its_timeline_in_the_event_log(tmp_path: Path) -> None:
    good, bad, begin = ScriptedReplica("good"), ScriptedReplica("bad", equal=False), time.time()
    async with world(tmp_path, good, bad) as it:
        await it.publisher.publish(it.request())
        (told,) = [event for event in read_events(tmp_path) if event["event"] == "publication"]
    assert (told["incarnation"], told["version"]) == (1, 3) and begin - 1 < told["began"] <= time.time() + 1
    assert [phase["phase"] for phase in told["phases"]] == ["prepare", "transfer", "verify", "commit"]
    times = [moment for phase in told["phases"] for moment in (phase["from_s"], phase["to_s"])]
    assert times == sorted(times) and times[0] >= 0 and times[-1] <= told["seconds"]
    members = {member["replica_id"]: member for member in told["members"]}
    good_one = {"replica_id": "good", "route": "gloo", "route_reason": "", "committed": True, "reason": ""}
    assert members["good"] == good_one | {"proof": "proven", "proof_note": ""}
    assert members["bad"]["proof"] == ""
    assert not members["bad"]["committed"] and members["bad"]["reason"].startswith("verify")


@pytest.mark.parametrize(
    ("script", "phase"),
    [
        ({"accept": False}, "prepare"),
        ({"prepare": "stall"}, "prepare"),
        ({"prepare": "die"}, "prepare"),
        ({"receive": "fail"}, "transfer"),
        ({"digests": ["xx"]}, "transfer"),
        ({"verify": "stall"}, "verify"),
        ({"verify": "die"}, "verify"),
        ({"equal": False}, "verify"),
        ({"commit": "fail"}, "commit"),
    ],
)
async def test_a_replica_that_fails_a_phase_is_left_out_and_the_other_commits(
    tmp_path: Path, script: dict[str, Any], phase: str
) -> None:
    good, bad = ScriptedReplica("good"), ScriptedReplica("bad", **script)
    async with world(tmp_path, good, bad) as it:
        response = await it.publisher.publish(it.request())
        assert committed(response) == {"good": True, "bad": False}
        outcome = next(outcome for outcome in response.outcomes if outcome.replica_id == "bad")
        assert outcome.reason.startswith(phase)
        stalls = "stall" in script.values()
        assert bool(DEADLINE.search(outcome.reason)) == stalls
        # A replica that stalls or dies does so until its call is ended: it never answers, whatever the wait.
        expected = stalls or "die" in script.values()
        await until_async(lambda: bad.broken_off == expected, "the call in which it stalls to be ended")


async def test_a_group_is_kept_until_its_first_failure_and_never_used_after_it(tmp_path: Path) -> None:
    steady, flaky = ScriptedReplica("steady"), ScriptedReplica("flaky")
    async with world(tmp_path, steady, flaky) as it:
        for version in (3, 4):
            assert committed(await it.publisher.publish(it.request(version))) == {"steady": True, "flaky": True}
        assert len(it.trainer.opened) == 2
        flaky.script["receive"] = "fail_once"
        assert committed(await it.publisher.publish(it.request(5))) == {"steady": True, "flaky": False}
        assert it.trainer.closed == [flaky.groups[0].name]
        # It is no longer waited for; the joiners' session brings it, from the disk.
        assert committed(await it.publisher.publish(it.request(6))) == {"steady": True}
        assert await it.publisher.bring(it.request(6), it.replica("flaky"))
        assert flaky.disk_paths[-1] == "/weights/6" and it.trainer.saved == [6]
        assert committed(await it.publisher.publish(it.request(7))) == {"steady": True, "flaky": True}
        assert len({group.name for group in steady.groups}) == 1
        assert flaky.groups[-1].name != flaky.groups[0].name


async def test_a_new_life_of_the_trainer_opens_new_groups(tmp_path: Path) -> None:
    one = ScriptedReplica("a")
    async with world(tmp_path, one) as it:
        await it.publisher.publish(it.request(3))
        address = it.state.trainer.address
        await it.state.register_trainer(
            pb.RegisterTrainerRequest(address=address, boot_id="t2", version=3, routes=GLOO, journaled_incarnation=1)
        )
        await it.publisher.publish(it.request(3, incarnation=2))
        assert len({group.name for group in one.groups}) == 2


async def test_a_tensor_parallel_engine_takes_consecutive_ranks(tmp_path: Path) -> None:
    wide = ScriptedReplica("wide", ranks=4)
    async with world(tmp_path, wide) as it:
        assert committed(await it.publisher.publish(it.request())) == {"wide": True}
        assert (wide.groups[0].rank, wide.groups[0].world_size) == (1, 5)
        assert it.trainer.sizes == [5]


async def test_a_slow_joiner_does_not_delay_the_trainers_publication(tmp_path: Path) -> None:
    quick, slow = ScriptedReplica("quick"), ScriptedReplica("slow", receive="wait")
    async with world(tmp_path, quick, slow) as it:
        joining = asyncio.create_task(it.publisher.bring(it.request(3), it.replica("slow")))
        while "receive" not in slow.calls:
            await asyncio.sleep(0.01)
        assert committed(await it.publisher.publish(it.request(4))) == {"quick": True}
        assert not joining.done(), "it was waited for"
        slow.go_on.set()
        assert await joining


async def test_from_disk_no_group_is_opened(tmp_path: Path) -> None:
    one = ScriptedReplica("a")
    async with world(tmp_path, one) as it:
        assert committed(await it.publisher.publish(it.request(disk="/weights"))) == {"a": True}
        assert it.trainer.sizes == []


async def test_a_lower_incarnation_is_fenced(tmp_path: Path) -> None:
    async with world(tmp_path, ScriptedReplica("a")) as it:
        it.state.incarnation = 2
        with pytest.raises(FencedError):
            await it.publisher.publish(it.request(incarnation=1))


async def test_a_repeated_publication_skips_replicas_that_have_it(tmp_path: Path) -> None:
    one = ScriptedReplica("a")
    async with world(tmp_path, one) as it:
        await it.publisher.publish(it.request())
        before = list(one.calls)
        again = await it.publisher.publish(it.request())
        assert committed(again) == {"a": True} and not again.outcomes[0].HasField("canary_gap")
        assert one.calls == before


async def test_a_new_trainer_ends_the_publication_of_the_dead_one(tmp_path: Path) -> None:
    async with world(tmp_path, ScriptedReplica("a", receive="stall")) as it:
        running = asyncio.create_task(it.publisher.publish(it.request()))
        while (progress := it.publisher.progress) is None or progress.phase != "transfer":
            assert not running.done(), running
            await asyncio.sleep(0.01)
        assert progress.waiting_for == ["a"]
        await it.state.register_trainer(pb.RegisterTrainerRequest(boot_id="t2", journaled_incarnation=1))
        it.publisher.supersede()
        with pytest.raises(FencedError, match="incarnation 1 is over"):
            await running
        assert it.publisher.progress is None


async def test_a_newcomer_gets_the_current_version_without_a_step(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.state.remember_publication(it.request())
        joiners = asyncio.create_task(Joiners(it.state, it.registry, it.publisher).run())
        late = ScriptedReplica("late")
        await it.join(late)
        await until_async(lambda: it.registry.alive(time.monotonic())[0].version.version == 3)
        joiners.cancel()
        assert late.calls == ["prepare", "receive", "verify", "commit"]


async def test_the_trainer_is_numbered_and_a_repeated_call_keeps_its_number(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        assert it.state.incarnation == 1
        again = pb.RegisterTrainerRequest(boot_id="t1", journaled_incarnation=0)
        assert await it.state.register_trainer(again) == 1
        assert await it.state.register_trainer(pb.RegisterTrainerRequest(boot_id="t2", journaled_incarnation=1)) == 2
        reborn = RunState(Store(tmp_path / "state.sqlite"), max_steps=10)
        assert reborn.incarnation == 2
        assert await reborn.register_trainer(pb.RegisterTrainerRequest(boot_id="t3", journaled_incarnation=7)) == 8


async def test_a_session_that_outlived_its_publication_is_ended_by_a_new_one(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.state.remember_publication(it.request())
        orphan = ScriptedReplica("orphan")
        await it.join(orphan, pb.REPLICA_STATE_UPDATING)
        began = time.monotonic()
        joiners = asyncio.create_task(Joiners(it.state, it.registry, it.publisher).run())
        await until_async(lambda: it.registry.alive(time.monotonic())[0].version.version == 3)
        joiners.cancel()
        assert orphan.calls == ["prepare", "receive", "verify", "commit"]
        assert orphan.first_call - began > 2.0, "its publication might still have been under way"


async def test_a_late_publication_of_an_older_version_changes_nothing(tmp_path: Path) -> None:
    one = ScriptedReplica("a")
    async with world(tmp_path, one) as it:
        it.state.remember_publication(it.request(5))
        run = Orchestrator.__new__(Orchestrator)
        run.state, run.publisher = it.state, it.publisher
        assert not (await run.publish(it.request(4))).outcomes
        assert it.state.publication is not None and it.state.publication.version == 5 and one.calls == []


async def test_groups_of_replicas_that_are_gone_are_closed(tmp_path: Path) -> None:
    gone, there = ScriptedReplica("gone"), ScriptedReplica("there")
    async with world(tmp_path, gone, there) as it:
        await it.publisher.publish(it.request(3))
        beat = pb.HeartbeatRequest(replica_id="gone", boot_id="gone", state=pb.REPLICA_STATE_GONE)
        it.registry.heartbeat(beat, time.monotonic())
        await it.publisher.forget_gone()
        assert it.trainer.closed == [gone.groups[0].name]


async def test_an_unreachable_trainer_is_not_counted_against_the_replica(tmp_path: Path) -> None:
    one = ScriptedReplica("a")
    async with world(tmp_path, one) as it:
        await it.servers[0].stop(0)
        assert committed(await it.publisher.publish(it.request())) == {"a": False}
        assert it.replica("a").missed == 0
