"""The messages: both faces agree, damage is refused, old bytes still parse, generated code is current."""

import pprint
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message as ProtoMessage
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.contracts import (
    DropReason,
    FinishReason,
    Header,
    Message,
    PolicyVersion,
    PromptGroup,
    Purpose,
    Rollout,
    RolloutGroup,
    Sampling,
    Score,
    ScoredGroup,
    Tombstone,
    VersionSpan,
    decode,
    decode_header,
    encode,
    rollout_seed,
)
from headrace.wire.contracts.codec import ID_LISTS
from headrace.wire.errors import ContractError
from headrace.wire.v1 import message_pb2
from tests import builders

GOLDEN = Path(__file__).parent / "golden"


def filled(scored: ScoredGroup) -> ScoredGroup:
    """With values other than the defaults in the fields that the other messages leave out."""
    sampling = Sampling(top_k=5, top_p=0.5, seed=3, greedy=True, forced_lengths=(2, 2))
    prompt = replace(scored.group.prompt, sampling=sampling, min_version=2, eval_version=4)
    first, second = scored.group.rollouts
    at = PolicyVersion(incarnation=1, version=3)
    spans = tuple(VersionSpan(start=place, end=place + 1, version=at, weights_digest="d") for place in (0, 1))
    group = replace(scored.group, prompt=prompt, rollouts=(replace(first, spans=spans), second), seconds=1.5)
    whole = Score(
        rollout_id=first.rollout_id,
        value=0.5,
        components={"numeric": 1.0},
        weights={"numeric": 0.5},
        reason="why",
        seconds={"numeric": 0.25},
        token_scores=np.array([0.5, np.nan], np.float32),
        answer_start=1,
    )
    abstained = Score(rollout_id=second.rollout_id, value=None)
    return replace(scored, group=group, scores=(whole, abstained), scorer_version="v", versions={"numeric": "1"})


MESSAGES = {
    "prompt": Message(header=builders.header(3, attempt=2), body=builders.prompt(answer="3", forced=[1, 2])),
    "rollouts": Message(header=builders.header(4), body=builders.group(4, size=3, answer="3")),
    "scored": Message(header=builders.header(5, purpose=Purpose.EVAL), body=builders.scored(5)),
    "baselines": Message(header=builders.header(7), body=builders.prompt(size=3, greedy_last=1)),
    "masked": Message(header=builders.header(8), body=builders.masked_group(8)),
    "played": Message(header=builders.header(9), body=builders.played_group(9)),
    "cut": Message(header=builders.header(13), body=builders.cut_group(13)),
    "traced": Message(
        header=replace(
            builders.header(10), issued_at=1_790_000_000.5, traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01"
        ),
        body=builders.prompt(),
    ),
    "filled": Message(header=builders.header(11), body=filled(builders.scored(11))),
    "dropped": Message(
        header=builders.header(12),
        body=Tombstone(reason=DropReason.STALE, detail="old", service="rollout", lengths=(3, 4)),
    ),
    "evaluated": Message(
        header=builders.header(11, purpose=Purpose.EVAL), body=replace(builders.prompt(), task="exact")
    ),
    "tombstone": Message(
        header=builders.header(6), body=Tombstone(reason=DropReason.POISON, detail="why", service="reward")
    ),
}


def same(one: Message, other: Message) -> bool:
    """Equality that looks into arrays."""
    return encode(one) == encode(other) and pprint.pformat(one) == pprint.pformat(other)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_survives_the_wire(name: str) -> None:
    assert same(decode(encode(MESSAGES[name])), MESSAGES[name])


def test_kept_ids_travel_beside_the_message_and_fit_their_tokens_alone() -> None:
    first, second = builders.cut_rollouts(13)
    assert first.kept is not None and second.kept is not None
    assert pprint.pformat(ID_LISTS.from_pb(ID_LISTS.to_pb(first.kept))) == pprint.pformat(first.kept)
    assert all(one.kept is None for one in decode(encode(MESSAGES["cut"])).body.rollouts)  # type: ignore[union-attr]
    for wrong in (
        {"counts": np.roll(second.kept.counts, 1)},  # Shifted by one token.
        {"ids": second.kept.ids[[0, 2, 1]]},  # Not ascending.
        {"ids": second.kept.ids + 50},
        {"ids": second.kept.ids[:-1]},
    ):
        with pytest.raises(ContractError):
            replace(second, kept=replace(second.kept, **wrong))
    with pytest.raises(ContractError, match="no_ids"):
        replace(builders.cut_group(13), kept=None)


@pytest.mark.parametrize("name", MESSAGES)
def test_bytes_written_by_an_earlier_build_still_parse(name: str) -> None:
    assert same(decode((GOLDEN / f"{name}.bin").read_bytes()), MESSAGES[name])


@pytest.mark.parametrize("name", MESSAGES)
def test_this_build_encodes_bodies_byte_for_byte_like_an_earlier_build(name: str) -> None:
    before = message_pb2.StreamMessage.FromString((GOLDEN / f"{name}.bin").read_bytes())
    now = message_pb2.StreamMessage.FromString(encode(MESSAGES[name]))
    kind = now.WhichOneof("body")
    assert kind is not None and getattr(now, kind) == getattr(before, kind)


def test_every_field_of_a_message_has_a_case() -> None:
    """A field without one could be forgotten in either direction of the codec, and no test would see it."""
    written: set[str] = set()
    declared: set[str] = set()
    for message in MESSAGES.values():
        outer = message_pb2.StreamMessage.FromString(encode(message))
        body = getattr(message_pb2, type(message.body).__name__)
        for one in (outer, body.FromString(getattr(outer, outer.WhichOneof("body") or ""))):
            note_fields(one, written)
            note_declared(one.DESCRIPTOR, declared)
    assert sorted(declared - written) == []


def note_fields(message: ProtoMessage, found: set[str]) -> None:
    """Adds `Message.field` of whatever is set in a message, also below it."""
    for field, value in message.ListFields():
        found.add(f"{message.DESCRIPTOR.name}.{field.name}")
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for one in value if field.is_repeated else [value]:
                note_fields(one, found)


def note_declared(kind: Descriptor, found: set[str]) -> None:
    """Adds `Message.field` of whatever a message may have, also below it."""
    for field in kind.fields:
        found.add(f"{kind.name}.{field.name}")
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            note_declared(field.message_type, found)


@given(
    ids=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40),
    logprobs=st.data(),
    columns=st.dictionaries(st.text(), st.one_of(st.text(), st.integers(-(2**53), 2**53), st.booleans(), st.none())),
)
def test_every_valid_group_survives_the_wire(
    ids: list[int], logprobs: st.DataObject, columns: dict[str, object]
) -> None:
    values = logprobs.draw(st.lists(st.floats(-1e6, 0, width=32), min_size=len(ids), max_size=len(ids)))
    trained = st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)).filter(any)
    drawn = logprobs.draw(st.none() | trained)
    mask = None if drawn is None else np.array(drawn)
    rollout = Rollout(
        rollout_id="r/g/0",
        token_ids=np.array(ids, np.int32),
        logprobs=np.where(True if mask is None else mask, np.array(values, np.float32), np.float32(0)),
        finish_reason=FinishReason.LENGTH,
        loss_mask=mask,
        spans=(VersionSpan(start=0, end=len(ids), version=PolicyVersion(incarnation=2, version=7)),),
    )
    prompt = PromptGroup(
        sample_id="s", token_ids=np.array(ids, np.int32), group_size=1, sampling=Sampling(), columns=columns
    )
    message = Message(header=builders.header(), body=RolloutGroup(prompt=prompt, rollouts=(rollout,)))
    assert same(decode(encode(message)), message)


@given(st.data())
def test_no_flipped_bit_passes_unnoticed(data: st.DataObject) -> None:
    raw = bytearray(encode(MESSAGES["rollouts"]))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        damaged = decode(bytes(raw))
    except ContractError:
        return
    assert repr(damaged) == repr(MESSAGES["rollouts"])


@given(st.data())
def test_a_flipped_bit_never_yields_the_header_of_another_group(data: st.DataObject) -> None:
    whole = encode(MESSAGES["rollouts"])
    raw = bytearray(whole)
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        damaged = decode_header(bytes(raw))
    except ContractError:
        return
    assert damaged == decode_header(whole)


@given(st.binary(max_size=300))
def test_garbage_is_refused_with_a_contract_error(raw: bytes) -> None:
    with pytest.raises(ContractError):
        decode(raw)


def test_a_newer_schema_is_refused() -> None:
    entry = message_pb2.StreamMessage.FromString(encode(MESSAGES["prompt"]))
    entry.header.schema_version = 99
    with pytest.raises(ContractError, match="bad_schema"):
        decode_header(entry.SerializeToString())


def test_a_valid_checksum_over_a_wrong_payload_is_still_checked() -> None:
    entry = message_pb2.StreamMessage.FromString(encode(MESSAGES["rollouts"]))
    group = message_pb2.RolloutGroup.FromString(entry.rollout_group)
    group.rollouts[0].logprobs = np.array([-0.5, np.nan], "<f4").tobytes()
    entry.rollout_group = group.SerializeToString()
    entry.header.checksum = zlib.crc32(entry.rollout_group)
    with pytest.raises(ContractError, match="bad_logprob"):
        decode(entry.SerializeToString())


@pytest.mark.parametrize(
    ("mask", "logprobs"),
    [
        (b"\x01", [-0.5, -0.5, 0]),
        (b"\x00\x00\x00", [0, 0, 0]),
        (b"\x01\x02\x00", [-0.5, -0.5, 0]),
        (b"\x01\x00\x01", [-0.5, -0.5, -0.5]),
    ],
    ids=["too short", "nothing to train", "no mask", "a logprob where nobody sampled"],
)
def test_decoding_rejects_a_bad_loss_mask(mask: bytes, logprobs: list[float]) -> None:
    entry = message_pb2.StreamMessage.FromString(encode(MESSAGES["masked"]))
    group = message_pb2.RolloutGroup.FromString(entry.rollout_group)
    group.rollouts[1].loss_mask = mask
    group.rollouts[1].logprobs = np.array(logprobs, "<f4").tobytes()
    entry.rollout_group = group.SerializeToString()
    entry.header.checksum = zlib.crc32(entry.rollout_group)
    with pytest.raises(ContractError, match="bad_mask"):
        decode(entry.SerializeToString())


@pytest.mark.parametrize("greedy_last", [2, 3])
def test_a_group_with_only_baselines_is_rejected(greedy_last: int) -> None:
    with pytest.raises(ContractError, match="bad_group_size"):
        builders.prompt(size=2, greedy_last=greedy_last)
    assert builders.prompt(size=2, greedy_last=1).trained == 1 and builders.prompt(size=2).trained == 2


@pytest.mark.parametrize(
    ("spans", "length"),
    [([(0, 1)], 2), ([(0, 1), (1, 3)], 2), ([(0, 2), (1, 2)], 2), ([], 2), ([(1, 2)], 2)],
)
def test_spans_must_cover_the_completion(spans: list[tuple[int, int]], length: int) -> None:
    version = PolicyVersion(incarnation=1, version=0)
    with pytest.raises(ContractError, match="bad_spans"):
        Rollout(
            rollout_id="r",
            token_ids=np.zeros(length, np.int32),
            logprobs=np.zeros(length, np.float32),
            finish_reason=FinishReason.STOP,
            spans=tuple(VersionSpan(start=a, end=b, version=version) for a, b in spans),
        )


def test_an_oversized_entry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.wire.contracts.codec.MAX_ENTRY_BYTES", 50)
    with pytest.raises(ContractError, match="too_large"):
        encode(MESSAGES["rollouts"])


def test_seeds_depend_on_run_seed_group_and_rollout_alone() -> None:
    assert rollout_seed(1, "run-a/g00000001", 0) == rollout_seed(1, "run-b/g00000001", 0)
    others = {rollout_seed(1, "a/g1", 1), rollout_seed(2, "a/g1", 0), rollout_seed(1, "a/g2", 0)}
    assert rollout_seed(1, "a/g1", 0) not in others
    assert len(others) == 3


def test_a_header_is_readable_even_if_the_body_is_damaged() -> None:
    entry = message_pb2.StreamMessage.FromString(encode(MESSAGES["rollouts"]))
    entry.rollout_group = b"damaged"
    header: Header = decode_header(entry.SerializeToString())
    assert header.group_index == 4
