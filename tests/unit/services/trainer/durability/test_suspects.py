from dataclasses import replace
from typing import Any

from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.durability.suspects import Suspects
from headrace.wire.contracts import PolicyVersion
from tests.unit.services.trainer.durability import test_ledger

NOW = PolicyVersion(incarnation=2, version=5)


def ready(index: int, *, replica_id: str = "rollout-0", **kwargs: Any) -> ReadyGroup:
    group = test_ledger.ready(index, **kwargs)
    return replace(group, scored=replace(group.scored, group=replace(group.scored.group, replica_id=replica_id)))


def test_only_weights_that_this_incarnation_never_had_are_counted() -> None:
    suspects = Suspects()
    honest = [ready(0, incarnation=1, version=7), ready(1, incarnation=2, version=4)]
    suspects.dropped(honest, NOW)
    assert suspects.rows() == {}
    suspects.dropped([ready(2, incarnation=2, version=5, digest="other"), ready(3, incarnation=2, version=6)], NOW)
    suspects.dropped([ready(4, incarnation=9, version=1)], NOW)
    suspects.dropped([ready(5, incarnation=9, version=1, replica_id="")], NOW)
    assert suspects.rows() == {"rollout-0": 3}
    suspects.trained([ready(6, replica_id="rollout-1")])
    assert suspects.rows() == {"rollout-0": 3}
    suspects.trained([ready(7)])
    assert suspects.rows() == {}
