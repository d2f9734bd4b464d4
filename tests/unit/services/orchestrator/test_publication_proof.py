"""What a replica's weights are held against after a publication, and what becomes of one that has others."""

from pathlib import Path
from typing import Any

import pytest

from headrace.wire.rundir.events import read_events
from tests.unit.services.orchestrator.publication_world import ScriptedReplica, committed, world


async def test_an_engine_with_checksums_receives_the_expected_values(tmp_path: Path) -> None:
    one = ScriptedReplica("a", format="sglang-sha256", digests=[])
    async with world(tmp_path, one) as it:
        assert committed(await it.publisher.publish(it.request())) == {"a": True}
        assert one.checksums == {"w": "sglang-sha256 3"}


async def test_a_replica_whose_weights_differ_from_the_others_is_quarantined(tmp_path: Path) -> None:
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
async def test_events_and_status_name_the_proof_of_the_weights(
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


async def test_a_newcomer_is_compared_with_serving_replicas(tmp_path: Path) -> None:
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
async def test_unchanged_weights_are_rejected_if_the_published_digest_changed(
    tmp_path: Path, before: str, now: str, accepted: bool
) -> None:
    one = ScriptedReplica("a", checksum="same")
    async with world(tmp_path, one) as it:
        for version, digest in ((3, before), (4, now)):
            request = it.request(version)
            request.plan.weights_digest = digest
            outcome = committed(await it.publisher.publish(request))
        assert outcome == {"a": accepted}


async def test_two_differing_replicas_are_both_rejected(tmp_path: Path) -> None:
    pair = ScriptedReplica("a", checksum="one"), ScriptedReplica("b", checksum="other")
    async with world(tmp_path, *pair) as it:
        assert committed(await it.publisher.publish(it.request())) == {"a": False, "b": False}


async def test_a_single_replica_that_keeps_its_old_weights_is_caught(tmp_path: Path) -> None:
    one = ScriptedReplica("a", checksum="old")
    async with world(tmp_path, one) as it:
        assert committed(await it.publisher.publish(it.request(3))) == {"a": True}
        newer = it.request(4)
        newer.plan.weights_digest = "other"
        assert committed(await it.publisher.publish(newer)) == {"a": False}
        assert one.calls[-1] == "quarantine"
