"""A trainer that opens no collective group to one replica: that one gets its weights over the disk, and is told so."""

import asyncio
from pathlib import Path

from headrace.services.orchestrator.publication.collective_groups import CollectiveGroups
from headrace.services.orchestrator.publication.joiners import Joiners
from headrace.services.orchestrator.status import Status
from headrace.wire.rundir.events import read_events
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.unit.services.orchestrator.publication_world import ScriptedReplica, World, committed, world
from tests.waiting import until_async

REASON = "3 joins of its collective groups hang in the trainer"


def routes(path: Path, version: int) -> dict[str, tuple[str, str]]:
    """Replica -> route and its reason, of all publications of a version."""
    told = [one for one in read_events(path) if one["event"] == "publication" and one["version"] == version]
    return {
        member["replica_id"]: (member["route"], member["route_reason"]) for one in told for member in one["members"]
    }


async def test_a_replica_refused_by_the_trainer_gets_that_publication_from_disk(tmp_path: Path) -> None:
    bad, good = ScriptedReplica("bad"), ScriptedReplica("good")
    async with world(tmp_path, bad, good) as it:
        it.trainer.refused = {"bad": REASON}
        assert committed(await it.publisher.publish(it.request())) == {"bad": True, "good": True}
        assert bad.disk_paths == ["/weights/3"] and good.disk_paths == [""]
        assert routes(tmp_path, 3) == {"bad": ("disk", REASON), "good": ("gloo", "")}
        assert it.replica("bad").missed == 0 and it.replica("bad").distrust == REASON


async def test_a_group_whose_opening_was_cancelled_is_closed(tmp_path: Path) -> None:
    async with world(tmp_path, ScriptedReplica("one")) as it:
        it.trainer.opening = asyncio.Event()
        groups = CollectiveGroups(it.clients)
        address = it.state.trainer.address
        taking = asyncio.create_task(
            groups.take(it.replica("one"), trainer=address, incarnation=1, version=3, backend="gloo")
        )
        await until_async(lambda: it.trainer.opened)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        await until_async(lambda: it.trainer.closed)
        assert it.trainer.closed == it.trainer.opened


async def test_a_refused_replica_stays_on_disk_and_the_trainer_is_not_asked_again(tmp_path: Path) -> None:
    bad, good = ScriptedReplica("bad"), ScriptedReplica("good")
    async with world(tmp_path, bad, good) as it:
        it.trainer.refused = {"bad": REASON}
        await it.publisher.publish(it.request())
        # Whether it would be refused again or not: its way is the disk now.
        it.trainer.refused, opened = {}, len(it.trainer.opened)
        await publish(it, 4)
        assert routes(tmp_path, 4) == {"bad": ("disk", REASON), "good": ("gloo", "")}
        assert bad.disk_paths == ["/weights/3", "/weights/4"] and len(it.trainer.opened) == opened
        status = Status(it.state._store, it.state, it.registry, None, it.publisher, None)  # type: ignore[arg-type]
        (told,) = [one for one in status.replicas() if one.id == "bad"]
        assert (told.route, told.route_reason, told.refused) == ("disk", REASON, REASON)


async def test_a_refusal_concerns_one_life_of_a_replica(tmp_path: Path) -> None:
    bad = ScriptedReplica("bad")
    async with world(tmp_path, bad) as it:
        before = it.replica("bad")
        it.registry.refuse(before, REASON)
        assert it.replica("bad").distrust == REASON
        again = pb.RegisterReplicaRequest(replica_id="bad", boot_id="other", address=before.address)
        it.registry.register(again, before.seen)
        assert it.replica("bad").refused == ""
        it.registry.refuse(before, REASON)
        assert it.replica("bad").refused == ""


async def publish(it: World, version: int) -> None:
    """As the service does: the trainer's publication, and the joiners beside it."""
    request = it.request(version)
    it.state.remember_publication(request)
    joiners = asyncio.create_task(Joiners(it.state, it.registry, it.publisher).run())
    try:
        assert committed(await it.publisher.publish(request)) == {"good": True}
        async with asyncio.timeout(60):
            while it.replica("bad").version.version != version:
                await asyncio.sleep(0.02)
    finally:
        joiners.cancel()
        await asyncio.gather(joiners, return_exceptions=True)
