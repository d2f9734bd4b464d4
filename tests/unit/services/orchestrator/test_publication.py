"""The coordinator against replicas that answer, lie, stall and die, over real gRPC."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.orchestrator.joiners import Joiners
from services.orchestrator.peers import Peers
from services.orchestrator.publication import Publisher
from services.orchestrator.registry import Registry, Replica
from services.orchestrator.run import Run
from services.orchestrator.run_state import RunState
from services.orchestrator.settings import PublicationTable
from services.orchestrator.store import Store
from wire.errors import FencedError, TransientError
from wire.events import EventLog, read_events
from wire.rpc import RpcServer, serve
from wire.v1 import common_pb2, rollout_pb2, rollout_pb2_grpc, trainer_pb2, trainer_pb2_grpc
from wire.v1 import orchestrator_pb2 as pb

PLAN = common_pb2.WeightPlan(buckets=[common_pb2.Bucket(digest="aa", dtype="float32")], weights_digest="ww")
GLOO = common_pb2.Routes(backends=["gloo"], ranks=1)
DEADLINES = {"prepare": "prepare_s", "receive": "transfer_s", "verify": "verify_s", "commit": "commit_s"}


class ScriptedReplica(rollout_pb2_grpc.RolloutServiceServicer):
    """Does what a replica does on the wire, except for what its script says."""

    def __init__(self, replica_id: str, **script: Any) -> None:
        self.replica_id = replica_id
        self.script = script
        self.calls: list[str] = []
        self.first_call = 0.0
        self.go_on = asyncio.Event()
        self.groups: list[rollout_pb2.CollectiveGroup] = []
        self.disk_paths: list[str] = []
        self.checksums: dict[str, str] = {}
        self.deadline_s = 0.0
        """Of the verification."""
        self.server: RpcServer | None = None

    async def _do(self, phase: str) -> None:
        self.calls.append(phase)
        self.first_call = self.first_call or time.monotonic()
        act = self.script.get(phase)
        if act == "wait":
            await self.go_on.wait()
        if act == "stall":
            await asyncio.sleep(30)
        if act == "fail":
            raise TransientError("broken")
        if act == "fail_once":
            del self.script[phase]
            raise TransientError("broken once")
        if act == "die":
            assert self.server is not None
            asyncio.get_running_loop().create_task(self.server.stop(0))
            await asyncio.sleep(30)

    async def PrepareWeights(self, request: Any, context: Any) -> Any:
        await self._do("prepare")
        return rollout_pb2.PrepareWeightsResponse(
            accepted=self.script.get("accept", True), reason="busy", checksum_format=self.script.get("format", "")
        )

    async def ReceiveWeights(self, request: Any, context: Any) -> Any:
        self.groups.append(request.collective)
        self.disk_paths.append(request.disk_path)
        await self._do("receive")
        return rollout_pb2.ReceiveWeightsResponse(digests=self.script.get("digests", ["aa"]))

    async def VerifyWeights(self, request: Any, context: Any) -> Any:
        await self._do("verify")
        self.checksums = {one.name: one.value for one in request.checksums}
        self.deadline_s = request.deadline_s
        return rollout_pb2.VerifyWeightsResponse(
            equal=self.script.get("equal", True),
            gap=0.5,
            checksum=self.script.get("checksum", ""),
            layout="L",
            unknown=self.script.get("unknown", 0),
        )

    async def CommitWeights(self, request: Any, context: Any) -> Any:
        await self._do("commit")
        return rollout_pb2.CommitWeightsResponse()

    async def AbortWeights(self, request: Any, context: Any) -> Any:
        self.calls.append("quarantine" if request.quarantine else "abort")
        return rollout_pb2.AbortWeightsResponse()

    async def GetReplica(self, request: Any, context: Any) -> Any:
        return rollout_pb2.GetReplicaResponse(replica_id=self.replica_id)


def deadlines(*replicas: ScriptedReplica) -> PublicationTable:
    """Near for a phase in which one of them stalls alone: no other is to miss one because the machine is busy."""
    acts = [one.script for one in replicas]
    near = {phase for script in acts for phase, act in script.items() if act in ("stall", "die")}
    return PublicationTable(**{key: 2.0 if phase in near else 60.0 for phase, key in DEADLINES.items()})


class ScriptedTrainer(trainer_pb2_grpc.TrainerServiceServicer):
    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.saved: list[int] = []

    async def CloseGroup(self, request: Any, context: Any) -> Any:
        self.closed.append(request.group_name)
        return trainer_pb2.CloseGroupResponse()

    async def SaveWeights(self, request: Any, context: Any) -> Any:
        self.saved.append(request.version)
        return trainer_pb2.SaveWeightsResponse(disk_path=f"/weights/{request.version}")

    async def GetChecksums(self, request: Any, context: Any) -> Any:
        return trainer_pb2.GetChecksumsResponse(
            checksums=[common_pb2.TensorChecksum(name="w", value=f"{request.format} {request.version}")]
        )

    async def OpenGroup(self, request: Any, context: Any) -> Any:
        self.opened.append(request.group_name)
        return trainer_pb2.OpenGroupResponse(store_host="127.0.0.1", store_port=1)

    async def SendWeights(self, request: Any, context: Any) -> Any:
        self.sizes.append(request.world_size)
        return trainer_pb2.SendWeightsResponse()


class World:
    """A publisher, its registry and peers."""

    def __init__(self, path: Path, times: PublicationTable) -> None:
        self.path, self.times = path, times
        self.state = RunState(Store(path / "state.sqlite"), max_steps=10)
        self.registry = Registry(lease_s=60)
        self.trainer = ScriptedTrainer()
        self.peers = Peers()
        self.publisher = Publisher(self.state, self.registry, self.peers, EventLog(path, "orchestrator", 1), times)
        self.servers: list[RpcServer] = []

    async def open(self, replicas: list[ScriptedReplica]) -> None:
        def add_trainer(server: Any) -> None:
            trainer_pb2_grpc.add_TrainerServiceServicer_to_server(self.trainer, server)

        trainer = await serve({"wire.v1.TrainerService": add_trainer}, "127.0.0.1", 0)
        self.servers.append(trainer)
        await self.state.register_trainer(
            pb.RegisterTrainerRequest(address=f"127.0.0.1:{trainer.port}", boot_id="t1", version=3, routes=GLOO)
        )
        for replica in replicas:
            await self.join(replica)

    async def join(self, replica: ScriptedReplica, state: int = pb.REPLICA_STATE_PENDING_WEIGHTS) -> None:
        def add(server: Any) -> None:
            rollout_pb2_grpc.add_RolloutServiceServicer_to_server(replica, server)

        replica.server = await serve({"wire.v1.RolloutService": add}, "127.0.0.1", 0)
        self.servers.append(replica.server)
        address = f"127.0.0.1:{replica.server.port}"
        now = time.monotonic()
        self.registry.register(
            pb.RegisterReplicaRequest(
                replica_id=replica.replica_id,
                boot_id=replica.replica_id,
                address=address,
                dtype="float32",
                routes=replica.script.get("routes")
                or common_pb2.Routes(backends=["gloo"], ranks=replica.script.get("ranks", 1)),
                first_verify_s=replica.script.get("first_verify_s", 0.0),
            ),
            now,
        )
        beat = pb.HeartbeatRequest(replica_id=replica.replica_id, boot_id=replica.replica_id, state=state)  # type: ignore[arg-type]
        self.registry.heartbeat(beat, now)

    def replica(self, replica_id: str) -> Replica:
        return next(one for one in self.registry.alive(time.monotonic()) if one.replica_id == replica_id)

    def request(self, version: int = 3, incarnation: int = 1, disk: str = "") -> pb.PublishRequest:
        return pb.PublishRequest(incarnation=incarnation, version=version, plan=PLAN, disk_path=disk)

    async def close(self) -> None:
        await self.peers.close()
        for server in self.servers:
            await server.stop(0)


@asynccontextmanager
async def world(path: Path, *replicas: ScriptedReplica) -> AsyncIterator[World]:
    built = World(path, deadlines(*replicas))
    await built.open(list(replicas))
    yield built
    await built.close()


def committed(response: pb.PublishResponse) -> dict[str, bool]:
    return {outcome.replica_id: outcome.committed for outcome in response.outcomes}


async def test_all_phases_in_order_and_the_commit_is_an_event(tmp_path: Path) -> None:
    one, two = ScriptedReplica("a"), ScriptedReplica("b")
    async with world(tmp_path, one, two) as it:
        response = await it.publisher.publish(it.request())
        assert committed(response) == {"a": True, "b": True}
        assert one.calls == two.calls == ["prepare", "receive", "verify", "commit"]
        assert it.trainer.sizes == [2, 2]
        assert [r.groups[0].rank for r in (one, two)] == [1, 1]
        assert one.groups[0].name != two.groups[0].name
        assert it.registry.alive(time.monotonic())[0].version.version == 3
        events = [event for event in read_events(tmp_path) if event["event"] == "publication_committed"]
        assert {event["replica_id"]: event["digest"] for event in events} == {"a": "ww", "b": "ww"}


async def test_a_publication_leaves_its_timeline_in_the_event_log(tmp_path: Path) -> None:
    good, bad = ScriptedReplica("good"), ScriptedReplica("bad", equal=False)
    async with world(tmp_path, good, bad) as it:
        await it.publisher.publish(it.request())
        (told,) = [event for event in read_events(tmp_path) if event["event"] == "publication"]
    assert (told["incarnation"], told["version"]) == (1, 3) and abs(time.time() - told["began"]) < 60
    assert [phase["phase"] for phase in told["phases"]] == ["prepare", "transfer", "verify", "commit"]
    times = [moment for phase in told["phases"] for moment in (phase["from_s"], phase["to_s"])]
    assert times == sorted(times) and times[0] >= 0 and times[-1] <= told["seconds"]
    members = {member["replica_id"]: member for member in told["members"]}
    good_one = {"replica_id": "good", "route": "gloo", "route_reason": "", "committed": True, "reason": ""}
    assert members["good"] == good_one | {"proof": "proven"}
    assert members["bad"]["proof"] == ""
    assert not members["bad"]["committed"] and members["bad"]["reason"].startswith("verify")


async def test_a_publication_that_was_broken_off_says_so(tmp_path: Path) -> None:
    slow = ScriptedReplica("slow", receive="stall")
    async with world(tmp_path, slow) as it:
        publishing = asyncio.create_task(it.publisher.publish(it.request()))
        while "receive" not in slow.calls:
            await asyncio.sleep(0.01)
        (progress,) = it.publisher.sessions
        assert [phase["phase"] for phase in progress.timeline()["phases"]] == ["prepare", "transfer"]
        it.publisher.supersede()
        with pytest.raises(TransientError):
            await publishing
        (told,) = [event for event in read_events(tmp_path) if event["event"] == "publication"]
    assert told["members"][0]["reason"] == "the publication was broken off"
    assert [phase["phase"] for phase in told["phases"]] == ["prepare", "transfer"]


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
async def test_who_misses_a_phase_is_left_out_and_the_other_goes_on(
    tmp_path: Path, script: dict[str, Any], phase: str
) -> None:
    good, bad = ScriptedReplica("good"), ScriptedReplica("bad", **script)
    async with world(tmp_path, good, bad) as it:
        begin = time.monotonic()
        response = await it.publisher.publish(it.request())
        assert committed(response) == {"good": True, "bad": False}
        outcome = next(outcome for outcome in response.outcomes if outcome.replica_id == "bad")
        assert outcome.reason.startswith(phase)
        assert time.monotonic() - begin < 25


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


async def test_a_tensor_parallel_engine_takes_a_run_of_ranks(tmp_path: Path) -> None:
    wide = ScriptedReplica("wide", ranks=4)
    async with world(tmp_path, wide) as it:
        assert committed(await it.publisher.publish(it.request())) == {"wide": True}
        assert (wide.groups[0].rank, wide.groups[0].world_size) == (1, 5)
        assert it.trainer.sizes == [5]


async def test_a_replica_that_froze_in_the_transfer_holds_nobody_beyond_one_deadline(tmp_path: Path) -> None:
    good, frozen = ScriptedReplica("good"), ScriptedReplica("frozen", receive="stall")
    async with world(tmp_path, good, frozen) as it:
        begin = time.monotonic()
        assert committed(await it.publisher.publish(it.request())) == {"good": True, "frozen": False}
        assert time.monotonic() - begin < it.times.transfer_s + 20
        assert good.calls.count("receive") == 1


async def test_an_engine_with_checksums_is_told_what_they_must_be(tmp_path: Path) -> None:
    one = ScriptedReplica("a", format="sglang-sha256", digests=[])
    async with world(tmp_path, one) as it:
        assert committed(await it.publisher.publish(it.request())) == {"a": True}
        assert one.checksums == {"w": "sglang-sha256 3"}


async def test_who_holds_other_weights_than_the_others_is_quarantined(tmp_path: Path) -> None:
    good = [ScriptedReplica(name, checksum="right") for name in "ab"]
    liar = ScriptedReplica("c", checksum="wrong")
    async with world(tmp_path, *good, liar) as it:
        assert committed(await it.publisher.publish(it.request())) == {"a": True, "b": True, "c": False}
        assert liar.calls[-1] == "quarantine" and "commit" not in liar.calls
        # Alone it is compared with those that serve already.
        assert not await it.publisher.bring(it.request(), it.replica("c"))
        liar.script["checksum"] = "right"
        assert await it.publisher.bring(it.request(), it.replica("c"))


@pytest.mark.parametrize(
    ("scripts", "proof"),
    [
        ([{}], "proven"),
        ([{"checksum": "right"}], "proven"),
        ([{"checksum": "right", "unknown": 3}], "canary"),
        ([{"checksum": "right", "unknown": 3}] * 2, "compared"),
    ],
)
async def test_events_and_status_say_what_the_weights_were_held_against(
    tmp_path: Path, scripts: list[dict[str, Any]], proof: str
) -> None:
    replicas = [ScriptedReplica(name, **script) for name, script in zip("ab", scripts, strict=False)]
    async with world(tmp_path, *replicas) as it:
        assert all(committed(await it.publisher.publish(it.request())).values())
        assert {it.replica(one.replica_id).proof for one in replicas} == {proof}
        events = [event for event in read_events(tmp_path) if event["event"].startswith("publication")]
    assert {event["proof"] for event in events if "proof" in event} == {proof}
    (told,) = [event for event in events if event["event"] == "publication"]
    assert {member["proof"] for member in told["members"]} == {proof}


async def test_a_newcomer_is_compared_with_those_that_serve(tmp_path: Path) -> None:
    first, second = (ScriptedReplica(name, checksum="right", unknown=3) for name in "ab")
    async with world(tmp_path, first, second) as it:
        assert await it.publisher.bring(it.request(), it.replica("a"))
        assert await it.publisher.bring(it.request(), it.replica("b"))
        assert [it.replica(name).proof for name in "ab"] == ["canary", "compared"]


@pytest.mark.parametrize(
    ("before", "now", "accepted"),
    [
        ("xxh3:aa", "xxh3:bb", False),
        ("xxh3:aa", "xxh3:aa", True),
        ("aa", "xxh3:aa", True),
        # The trainer has moved to a GPU: nothing says that the weights are others.
        ("xxh3:aa", "sgl64:bb", True),
    ],
)
async def test_who_has_kept_its_weights_is_refused_where_others_are_known_to_have_come(
    tmp_path: Path, before: str, now: str, accepted: bool
) -> None:
    one = ScriptedReplica("a", checksum="same")
    async with world(tmp_path, one) as it:
        for version, digest in ((3, before), (4, now)):
            request = it.request(version)
            request.plan.weights_digest = digest
            outcome = committed(await it.publisher.publish(request))
        assert outcome == {"a": accepted}


async def test_of_two_that_differ_neither_is_believed(tmp_path: Path) -> None:
    pair = ScriptedReplica("a", checksum="one"), ScriptedReplica("b", checksum="other")
    async with world(tmp_path, *pair) as it:
        assert committed(await it.publisher.publish(it.request())) == {"a": False, "b": False}


async def test_a_slow_joiner_does_not_hold_the_trainers_publication(tmp_path: Path) -> None:
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


async def test_a_repeated_publication_leaves_alone_who_has_it(tmp_path: Path) -> None:
    one = ScriptedReplica("a")
    async with world(tmp_path, one) as it:
        await it.publisher.publish(it.request())
        before = list(one.calls)
        assert committed(await it.publisher.publish(it.request())) == {"a": True}
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
        for _ in range(600):
            if it.registry.alive(time.monotonic())[0].version.version == 3:
                break
            await asyncio.sleep(0.05)
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
        for _ in range(600):
            if it.registry.alive(time.monotonic())[0].version.version == 3:
                break
            await asyncio.sleep(0.05)
        joiners.cancel()
        assert orphan.calls == ["prepare", "receive", "verify", "commit"]
        assert orphan.first_call - began > 2.0, "its publication might still have been under way"


async def test_two_lives_of_the_coordinator_never_use_one_publication_id(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        again = Publisher(it.state, it.registry, it.peers, EventLog(tmp_path, "orchestrator", 2), it.times)
        assert it.publisher._next_attempt() != again._next_attempt()


async def test_a_late_publication_of_an_older_version_changes_nothing(tmp_path: Path) -> None:
    one = ScriptedReplica("a")
    async with world(tmp_path, one) as it:
        it.state.remember_publication(it.request(5))
        run = Run.__new__(Run)
        run.state, run.publisher = it.state, it.publisher
        assert not (await run.publish(it.request(4))).outcomes
        assert it.state.publication is not None and it.state.publication.version == 5 and one.calls == []


async def test_a_replica_told_of_the_disk_begins_a_new_group_afterwards(tmp_path: Path) -> None:
    one = ScriptedReplica("a")
    async with world(tmp_path, one) as it:
        await it.publisher.publish(it.request(3))
        one.script["verify"] = "fail_once"
        await it.publisher.publish(it.request(4))
        assert await it.publisher.bring(it.request(4), it.replica("a"))
        assert it.trainer.closed == [one.groups[0].name]
        assert committed(await it.publisher.publish(it.request(5))) == {"a": True}
        assert one.groups[-1].name not in {one.groups[0].name, ""}


async def test_groups_of_replicas_that_are_gone_are_closed(tmp_path: Path) -> None:
    gone, there = ScriptedReplica("gone"), ScriptedReplica("there")
    async with world(tmp_path, gone, there) as it:
        await it.publisher.publish(it.request(3))
        beat = pb.HeartbeatRequest(replica_id="gone", boot_id="gone", state=pb.REPLICA_STATE_GONE)
        it.registry.heartbeat(beat, time.monotonic())
        await it.publisher.forget_gone()
        assert it.trainer.closed == [gone.groups[0].name]


async def test_who_keeps_its_old_weights_is_caught_although_it_is_alone(tmp_path: Path) -> None:
    one = ScriptedReplica("a", checksum="old")
    async with world(tmp_path, one) as it:
        assert committed(await it.publisher.publish(it.request(3))) == {"a": True}
        newer = it.request(4)
        newer.plan.weights_digest = "other"
        assert committed(await it.publisher.publish(newer)) == {"a": False}
        assert one.calls[-1] == "quarantine"


async def test_a_trainer_that_is_away_is_not_the_replicas_miss(tmp_path: Path) -> None:
    one = ScriptedReplica("a")
    async with world(tmp_path, one) as it:
        await it.servers[0].stop(0)
        assert committed(await it.publisher.publish(it.request())) == {"a": False}
        assert it.replica("a").missed == 0
