"""Credit, order, registry, scoring of evaluations: the pure parts of the orchestrator."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.orchestrator.issuing.credit import credit_limit
from headrace.services.orchestrator.issuing.eval_result import numbers_of, was_graded
from headrace.services.orchestrator.issuing.prompts import PromptOrder
from headrace.services.orchestrator.issuing.start_gate import StartGate
from headrace.services.orchestrator.publication.transfer import check_digests
from headrace.services.orchestrator.state.registry import Registry, Replica
from headrace.wire.contracts import PolicyVersion, Score
from headrace.wire.errors import ContractError
from headrace.wire.v1 import common_pb2
from headrace.wire.v1 import orchestrator_pb2 as pb


def registered(registry: Registry, replica_id: str) -> Replica:
    return registry._replicas[replica_id]


@given(st.integers(0, 50), st.integers(0, 8), st.integers(1, 64))
def test_credit_is_bounded_by_staleness_and_by_the_steps_left(version: int, staleness: int, groups: int) -> None:
    limit = credit_limit(version=version, max_steps=40, max_staleness=staleness, groups_per_batch=groups)
    assert limit <= (staleness + 1) * groups
    assert limit <= max(0, 40 - version) * groups
    assert limit == 0 or version < 40


@given(st.integers(1, 40), st.integers(0, 2**32))
def test_every_epoch_is_a_permutation_of_all_rows(num_rows: int, seed: int) -> None:
    order = PromptOrder(num_rows, seed)
    epochs = [[order.row(epoch * num_rows + i) for i in range(num_rows)] for epoch in range(2)]
    assert all(sorted(epoch) == list(range(num_rows)) for epoch in epochs)


def test_the_prompt_order_depends_only_on_the_seed() -> None:
    one, two = PromptOrder(10, 7), PromptOrder(10, 7)
    asked = [one.row(i) for i in range(35)]
    assert [two.row(i) for i in reversed(range(35))] == asked[::-1]
    assert asked != [PromptOrder(10, 8).row(i) for i in range(35)]


def beat(boot: str = "b", *, state: int = pb.REPLICA_STATE_SERVING, tokens: int = 0) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(replica_id="r", boot_id=boot, state=state, generated_tokens=tokens)  # type: ignore[arg-type]


def test_a_replica_lives_as_long_as_its_lease() -> None:
    registry = Registry(lease_s=10)
    registry.register(pb.RegisterReplicaRequest(replica_id="r", boot_id="b", address="a"), now=0)
    assert registry.heartbeat(beat(), now=5)
    assert [replica.replica_id for replica in registry.alive(14)] == ["r"]
    assert registry.alive(16) == []


def test_another_boot_must_register_and_replaces_the_old_one() -> None:
    registry = Registry(lease_s=10)
    registry.register(pb.RegisterReplicaRequest(replica_id="r", boot_id="old", address="a"), now=0)
    registry.register(pb.RegisterReplicaRequest(replica_id="r", boot_id="new", address="b"), now=1)
    assert not registry.heartbeat(beat("old"), now=2)
    assert registry.heartbeat(beat("new"), now=2)
    assert registry.alive(2)[0].address == "b"


def test_a_draining_replica_gets_no_publication() -> None:
    registry = Registry(lease_s=10)
    registry.register(pb.RegisterReplicaRequest(replica_id="r", boot_id="b", address="a"), now=0)
    assert registry.members(0) == []  # STARTING
    registry.heartbeat(beat(state=pb.REPLICA_STATE_PENDING_WEIGHTS), now=1)
    assert len(registry.members(1)) == 1
    registry.heartbeat(beat(state=pb.REPLICA_STATE_DRAINING), now=2)
    assert registry.members(2) == []


def test_a_heartbeat_that_a_commit_has_overtaken_changes_nothing() -> None:
    registry = Registry(lease_s=10)
    registry.register(pb.RegisterReplicaRequest(replica_id="r", boot_id="b", address="a"), now=0)
    registry.committed(registered(registry, "r"), PolicyVersion(incarnation=1, version=4), now=1)
    late = pb.HeartbeatRequest(replica_id="r", boot_id="b", state=pb.REPLICA_STATE_UPDATING)
    registry.heartbeat(late, now=1.5)
    (replica,) = registry.alive(1.5)
    assert (replica.state, replica.version.version, replica.seen) == (pb.REPLICA_STATE_SERVING, 4, 1.5)
    registry.heartbeat(late, now=3)
    assert registry.alive(3)[0].state == pb.REPLICA_STATE_UPDATING
    registry.committed(registered(registry, "r"), PolicyVersion(incarnation=1, version=5), now=4)
    registry.heartbeat(pb.HeartbeatRequest(replica_id="r", boot_id="b", state=pb.REPLICA_STATE_GONE), now=4.1)
    assert not registry.alive(4.1), "the end of a replica is believed at once"


def test_a_replica_that_registers_again_is_still_the_one_that_missed_a_publication() -> None:
    registry = Registry(lease_s=10)
    request = pb.RegisterReplicaRequest(replica_id="r", boot_id="b", address="a")
    registry.register(request, now=0)
    registry.committed(registered(registry, "r"), PolicyVersion(incarnation=1, version=4), now=0)
    registry.missed(registry.alive(0)[0])
    registry.register(request, now=5)
    (known,) = registry.alive(5)
    assert known.distrust and known.version.version == 4 and known.seen == 5
    registry.register(pb.RegisterReplicaRequest(replica_id="r", boot_id="another", address="a"), now=6)
    (newborn,) = registry.alive(6)
    assert newborn.distrust and newborn.version.version == 0, "its next life comes back over the disk"


def held_out(*prompts: Sequence[float | None], **given: Any) -> dict[str, Any]:
    """The numbers of a set whose rollouts have these scores, those of component `x` being a half of them."""
    scores = [
        [
            Score(rollout_id="", value=value, components={} if value is None else {"x": value / 2}, weights={"x": 2.0})
            for value in some
        ]
        for some in prompts
    ]
    return numbers_of([(f"row-{number}", some) for number, some in enumerate(scores)], **given)


def test_pass_at_k_and_avg_at_k_are_over_prompts_with_k_tries_and_the_others_are_named() -> None:
    found = held_out((1, 1, 1, 1), (1, 0, 0, 0), (0, 0, 0, 0), (1, 1, None), (None,) * 4, (), k=4)
    assert (found["prompts"], found["missing"], found["abstained"]) == (4, 2, 5)
    assert found["accuracy"] == found["reward_mean"] == pytest.approx(7 / 14)
    assert found["pass_at_k"] == pytest.approx(2 / 3) and found["avg_at_k"] == pytest.approx(1.25 / 3)
    shares = [1.0, 0.25, 0.0]
    assert found["avg_at_k_error"] == pytest.approx(1.96 * statistics.stdev(shares) / math.sqrt(3))
    assert (found["short_prompts"], found["short"]) == (1, ["row-3"])
    assert found["rewards/x/mean"] == pytest.approx(0.25) and found["rewards/x/weighted"] == found["reward_mean"]


def test_graded_scores_have_a_mean_and_an_accuracy_only_above_a_bound() -> None:
    graded = held_out((0.2,), (0.9,))
    assert graded["reward_mean"] == pytest.approx(0.55) and "accuracy" not in graded and was_graded([{}, graded])
    assert held_out((0.2,), (0.9,), correct_above=0.8)["accuracy"] == 0.5
    assert "accuracy" not in held_out((1.0,), (0.0,), was_graded=True)
    assert held_out((2.0,), (0.0,), component="x")["accuracy"] == 0.5
    lost = held_out(())
    assert (lost["missing"], "accuracy" in lost, was_graded([lost])) == (1, False, False)


def test_a_wrong_or_missing_digest_is_a_contract_error() -> None:
    plan = common_pb2.WeightPlan(buckets=[common_pb2.Bucket(digest="aa"), common_pb2.Bucket(digest="bb")])
    check_digests(plan, ["aa", "bb"], "r")
    for digests in (["aa", "xx"], ["aa"], ["aa", "bb", "cc"], []):
        with pytest.raises(ContractError, match="bad_digest"):
            check_digests(plan, digests, "r")


def registry_of(**speeds: float) -> Registry:
    """Serving replicas with a speed each."""
    registry = Registry(lease_s=10)
    for name, speed in speeds.items():
        registry.register(pb.RegisterReplicaRequest(replica_id=name, boot_id=name), now=0)
        report = pb.HeartbeatRequest(replica_id=name, boot_id=name, state=pb.REPLICA_STATE_SERVING, speed=speed)
        assert registry.heartbeat(report, now=1)
    return registry


def test_a_faster_replica_gets_more_and_all_shares_are_the_whole() -> None:
    registry = registry_of(fast=30, slow=10)
    assert [registry.share(name, 1) for name in ("fast", "slow")] == [0.75, 0.25]
    assert registry_of(one=5).share("one", 1) == 1


def test_all_heartbeats_of_a_second_get_shares_of_one_table() -> None:
    registry = registry_of(a=30, b=10)
    shares = [registry.share("a", 1)]
    report = pb.HeartbeatRequest(replica_id="a", boot_id="a", state=pb.REPLICA_STATE_SERVING, speed=10)
    registry.heartbeat(report, now=1.5)
    shares += [registry.share("b", 1.5), registry.share("a", 1.5, without={"b"}), registry.share("b", 2.6)]
    assert shares == [0.75, 0.25, 1, 0.5]


def test_gone_and_quarantined_replicas_leave_their_share_to_the_others() -> None:
    registry = registry_of(a=10, b=10, c=10)
    for name, state in (("b", pb.REPLICA_STATE_GONE), ("c", pb.REPLICA_STATE_QUARANTINED)):
        registry.heartbeat(pb.HeartbeatRequest(replica_id=name, boot_id=name, state=state), now=2)
    assert registry.share("a", 2) == 1
    assert registry.share("b", 2) == registry.share("c", 2) == 0
    assert [replica.replica_id for replica in registry.alive(2)] == ["a", "c"]


def test_the_first_prompt_waits_for_the_replicas_a_run_begins_with_but_not_for_ever() -> None:
    registry = registry_of(a=1)
    beginning = StartGate(registry, replicas=2, deadline_s=60, now=0)
    assert not beginning.is_over(2) and beginning.waiting_for == "2 replicas to serve, 1 do"
    registry.register(pb.RegisterReplicaRequest(replica_id="b", boot_id="b"), now=3)
    assert not beginning.is_over(3), "it has registered, but does not serve yet"
    registry.committed(registered(registry, "b"), PolicyVersion(incarnation=1, version=0), now=0)
    assert beginning.is_over(4) and beginning.waiting_for == ""
    assert beginning.is_over(1000), "whoever leaves later holds nothing up"
    late = StartGate(registry_of(a=1), replicas=2, deadline_s=5, now=0)
    assert not late.is_over(4) and late.is_over(6)
    assert StartGate(registry_of(), replicas=0, deadline_s=5, now=0).is_over(0)
