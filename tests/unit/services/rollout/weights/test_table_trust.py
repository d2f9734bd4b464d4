"""When the trainer's checksums are believed against an engine's own."""

from headrace.services.rollout.weights.table_trust import TableTrust
from headrace.wire.v1.common_pb2 import TensorChecksum


def table(**values: str) -> list[TensorChecksum]:
    return [TensorChecksum(name=name, value=value) for name, value in values.items()]


def test_a_mismatch_is_wrong_only_for_tensors_that_matched_before() -> None:
    trust = TableTrust({"a": "0", "b": "0"})
    first = trust.compare({"a": "1", "b": "1"}, table(a="1", b="x"))
    assert first.differing == ("b",) and not first.wrong and first.unknown == 2
    # One that is right says nothing while others are not.
    assert not trust.compare({"a": "2", "b": "2"}, table(a="x", b="x")).wrong
    assert trust.compare({"a": "3", "b": "3", "c": "3"}, table(a="3", b="3")).unknown == 1
    later = trust.compare({"a": "4", "b": "4"}, table(a="4", b="x"))
    assert later.wrong and later.differing == ("b",)


def test_a_tensor_that_the_table_has_learned_since_is_doubted_by_itself() -> None:
    trust = TableTrust({})
    assert not trust.compare({"a": "1", "b": "1"}, table(a="1")).differing
    assert not trust.compare({"a": "2", "b": "2"}, table(a="2", b="x")).wrong


def test_checksums_of_loaded_weights_are_reported_where_known() -> None:
    known = TableTrust({"a": "0"})
    assert known.loaded_known and known.loaded(["a", "b"]) == table(a="0", b="")
    assert not TableTrust({}).loaded_known
