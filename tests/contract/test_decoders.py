"""What reads bytes from elsewhere refuses them by its own error, whatever they are: checksums prove no content."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.services.environment.agent.requests import read_request as read_call
from headrace.services.orchestrator.http.chat_request import ChatBody, read_chat, to_wire
from headrace.wire.api.openai import ChatRefusedError
from headrace.wire.contracts import Sampling, decode, encode
from headrace.wire.contracts.codec import _header_checksum
from headrace.wire.errors import ContractError
from headrace.wire.journal.framing import MAGIC, JournalDamagedError, frame, unframe
from headrace.wire.journal.records import pack, unpack
from headrace.wire.rundir import events, jsonl
from headrace.wire.v1 import message_pb2
from tests.json_values import ANYTHING, ODD_BODIES, ODD_TEXTS, values

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.bin"))
RAW = st.binary(max_size=200) | ANYTHING.map(lambda value: json.dumps(value).encode()) | st.sampled_from(ODD_BODIES)


def resealed(entry: message_pb2.StreamMessage, kind: str, payload: bytes) -> bytes:
    """The entry with another payload, under checksums that are right."""
    setattr(entry, kind, payload)
    entry.header.checksum = zlib.crc32(payload)
    entry.header.header_checksum = _header_checksum(entry.header)
    return entry.SerializeToString()


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
@settings(max_examples=150, derandomize=True)
@given(data=st.data())
def test_altered_content_with_a_valid_checksum_is_decoded_or_rejected(golden: Path, data: st.DataObject) -> None:
    entry = message_pb2.StreamMessage.FromString(golden.read_bytes())
    kind = entry.WhichOneof("body")
    payload = bytearray(getattr(entry, kind))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(payload)))
        if data.draw(st.booleans()):
            payload[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=6))
        elif place < len(payload):
            payload[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = decode(resealed(entry, kind, bytes(payload)))
    except ContractError:
        return
    encode(read)


@settings(max_examples=300, derandomize=True)
@given(data=st.data())
def test_each_field_of_a_group_may_hold_what_its_type_allows(data: st.DataObject) -> None:
    entry = message_pb2.StreamMessage.FromString((GOLDEN[0].parent / "scored.bin").read_bytes())
    scored = message_pb2.ScoredGroup.FromString(entry.scored_group)
    message: Any = scored
    while True:
        field = data.draw(st.sampled_from(list(message.DESCRIPTOR.fields)))
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            break
        inner = getattr(message, field.name)
        if field.is_repeated:
            inner = inner[0] if len(inner) else inner.add()
        message = inner
    odd: dict[int, st.SearchStrategy[Any]] = {
        field.CPPTYPE_STRING: st.binary(max_size=9) if field.type == field.TYPE_BYTES else st.text(max_size=9),
        field.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
        field.CPPTYPE_ENUM: st.integers(-1, 60),
        field.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
        field.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
        field.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
        field.CPPTYPE_DOUBLE: st.floats(),
        field.CPPTYPE_FLOAT: st.floats(width=32),
        field.CPPTYPE_BOOL: st.booleans(),
    }
    if field.message_type is None:
        value = data.draw(odd[field.cpp_type])
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    try:
        read = decode(resealed(entry, "scored_group", scored.SerializeToString()))
    except ContractError:
        return
    encode(read)


@settings(max_examples=400, derandomize=True)
@given(kind=st.integers(0, 5), payload=RAW)
def test_journal_bytes_decode_to_a_record_or_report_damage(kind: int, payload: bytes) -> None:
    try:
        record = unpack(kind, payload, "segment")
    except JournalDamagedError as error:
        assert str(error).startswith("segment")
        return
    assert unpack(*pack(record), "again") == record


@settings(max_examples=300, derandomize=True)
@given(head=st.sampled_from([MAGIC, MAGIC[:3], b""]), parts=st.lists(RAW, max_size=3), tail=st.binary(max_size=60))
def test_a_segment_of_any_bytes_is_read_up_to_its_damage(head: bytes, parts: list[bytes], tail: bytes) -> None:
    framed = b"".join(frame(7, part) for part in parts)
    try:
        found = [payload for _, payload, _ in unframe(head + framed + tail, "segment")]
    except JournalDamagedError:
        return
    assert found[: len(parts)] == (parts if head == MAGIC else [])


@settings(max_examples=400, derandomize=True)
@given(lines=st.lists(RAW, max_size=4))
def test_event_and_metric_lines_decode_to_objects_or_are_skipped(lines: list[bytes]) -> None:
    for record in jsonl.records(b"\n".join(lines)):
        assert json.loads(json.dumps(record, allow_nan=False)) == record
    for line in lines:
        assert isinstance(events.name_of(line), str)


SCHEMA = ChatBody.model_json_schema()
TEXTS = st.text(max_size=9) | st.sampled_from(ODD_TEXTS)
ASKED = st.fixed_dictionaries(
    {"messages": st.lists(st.fixed_dictionaries({"role": TEXTS, "content": TEXTS}), min_size=1, max_size=2)},
    optional={"stop": TEXTS | st.lists(TEXTS, max_size=2), "model": st.just("policy") | TEXTS, "seed": st.integers()},
)
CHATS = (ASKED | values(SCHEMA, SCHEMA.get("$defs", {}))).map(lambda value: json.dumps(value).encode()) | RAW


@settings(max_examples=600, derandomize=True)
@given(raw=CHATS)
def test_a_chat_reaches_a_replica_or_is_refused(raw: bytes) -> None:
    try:
        request = to_wire(read_chat(raw, ("policy",)), (3,), deadline_s=1.0, wait_s=1.0)
    except ChatRefusedError as refused:
        assert refused.status in (400, 404) and json.dumps(refused.body(), ensure_ascii=False).encode()
        return
    assert type(request).FromString(request.SerializeToString()) == request
    messages = json.loads(request.messages_json)
    assert isinstance(messages, list) and json.dumps(messages, ensure_ascii=False).encode()


MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"]) | ANYTHING, "content": ANYTHING},
    optional={"tool_calls": ANYTHING, "name": ANYTHING, "odd": ANYTHING},
)
CALL = st.fixed_dictionaries(
    {"model": st.just("policy") | ANYTHING, "messages": st.lists(MESSAGE, max_size=3) | ANYTHING},
    optional=dict.fromkeys(("tools", "max_tokens", "temperature", "top_p", "stream", "stream_options"), ANYTHING),
).map(lambda value: json.dumps(value).encode())


@settings(max_examples=500, derandomize=True)
@given(raw=CALL | RAW)
def test_an_agents_policy_request_is_parsed_or_rejected(raw: bytes) -> None:
    try:
        asked = read_call(raw, Sampling())
    except ChatRefusedError as refused:
        assert refused.status in (400, 404) and refused.message
        return
    assert asked.messages
