"""Converts messages between protobuf bytes and frozen dataclasses; no other module knows both forms."""

import zlib
from types import MappingProxyType
from typing import Any

from google.protobuf.message import DecodeError

from headrace.wire.contracts.columns import ColumnFile, IdLists
from headrace.wire.contracts.episodes import EnvironmentReward, EnvironmentTask, Episode, Segment
from headrace.wire.contracts.mapping import Codec, numbers
from headrace.wire.contracts.messages import (
    SCHEMA_VERSION,
    FinishReason,
    Header,
    Message,
    PolicyVersion,
    PromptGroup,
    Rollout,
    RolloutGroup,
    Sampling,
    ScoredGroup,
    Tombstone,
    VersionSpan,
)
from headrace.wire.contracts.scores import Score
from headrace.wire.errors import ContractError
from headrace.wire.v1 import message_pb2 as pb

MAX_ENTRY_BYTES = 64 * 1024 * 1024
"""A larger stream entry is refused at the door."""

FINISH_TO_PB = MappingProxyType(
    {
        one: pb.FinishReason.ValueType(number)
        for one, number in numbers(FinishReason, pb.FinishReason.DESCRIPTOR).items()
    }
)
FINISH_FROM_PB = MappingProxyType({number: reason for reason, number in FINISH_TO_PB.items()})


class _ScoreCodec(Codec[Score, pb.Score]):
    """An abstention and a missing answer have values of their own in the message."""

    def to_pb(self, value: Score) -> pb.Score:
        raw = super().to_pb(value)
        raw.abstained = value.value is None
        if value.answer_start is None:
            raw.answer_start = -1
        return raw

    def values(self, raw: pb.Score) -> dict[str, Any]:
        return super().values(raw) | {
            "value": None if raw.abstained else raw.value,
            "answer_start": None if raw.answer_start == -1 else raw.answer_start,
        }


# In this order: a message after those that it holds.
_HEADER = Codec(Header, pb.Header)
VERSION = Codec(PolicyVersion, pb.PolicyVersion)
SPAN = Codec(VersionSpan, pb.VersionSpan)
SAMPLING = Codec(Sampling, pb.Sampling)
SCORE = _ScoreCodec(Score, pb.Score)
for _kind, _message in (
    (EnvironmentTask, pb.EnvironmentTask),
    (EnvironmentReward, pb.EnvironmentReward),
    (Segment, pb.Segment),
    (Episode, pb.Episode),
    (Rollout, pb.Rollout),
):
    Codec(_kind, _message)
PROMPT = Codec(PromptGroup, pb.PromptGroup)
ID_LISTS = Codec(IdLists, pb.IdLists)
Codec(ColumnFile, pb.ColumnFile)
GROUP = Codec(RolloutGroup, pb.RolloutGroup)
_BODIES: dict[str, Codec[Any, Any]] = {
    "prompt_group": PROMPT,
    "rollout_group": GROUP,
    "scored_group": Codec(ScoredGroup, pb.ScoredGroup),
    "tombstone": Codec(Tombstone, pb.Tombstone),
}


def encode(message: Message) -> bytes:
    """Serializes a message for a stream; raises ContractError (`too_large`) beyond `MAX_ENTRY_BYTES`."""
    kind, codec = next((kind, codec) for kind, codec in _BODIES.items() if isinstance(message.body, codec.kind))
    payload = codec.to_pb(message.body).SerializeToString()
    header = _HEADER.to_pb(message.header)
    header.schema_version, header.checksum = SCHEMA_VERSION, zlib.crc32(payload)
    header.header_checksum = _header_checksum(header)
    data = pb.StreamMessage(header=header, **{kind: payload}).SerializeToString()
    if len(data) > MAX_ENTRY_BYTES:
        raise ContractError("too_large", f"{header.group_id}: {len(data)} bytes, the limit is {MAX_ENTRY_BYTES}")
    return data


def decode_header(data: bytes) -> Header:
    """Reads only the header: enough to give up an entry whose body is damaged."""
    return _header(_parse(data))


def decode(data: bytes) -> Message:
    """Reads a stream entry; raises ContractError if it breaks the contract (checksum, lengths, ranges)."""
    entry = _parse(data)
    header = _header(entry)
    kind = entry.WhichOneof("body")
    if kind is None:
        raise ContractError("bad_schema", f"{header.group_id}: the message has no known body")
    payload: bytes = getattr(entry, kind)
    if zlib.crc32(payload) != entry.header.checksum:
        raise ContractError("bad_checksum", f"{header.group_id}: the payload does not match its checksum")
    try:
        return Message(header=header, body=_BODIES[kind].from_bytes(payload))
    except DecodeError as error:
        raise ContractError("bad_bytes", f"{header.group_id}: {error}") from error


def _parse(data: bytes) -> pb.StreamMessage:
    if len(data) > MAX_ENTRY_BYTES:
        raise ContractError("too_large", f"{len(data)} bytes, the limit is {MAX_ENTRY_BYTES}")
    try:
        return pb.StreamMessage.FromString(data)
    except DecodeError as error:
        raise ContractError("bad_bytes", f"not a stream message: {error}") from error


def _header_checksum(raw: pb.Header) -> int:
    fields = (
        *(raw.schema_version, raw.run_id, raw.purpose, raw.group_index, raw.group_id, raw.attempt),
        *(raw.traceparent, raw.issued_at.hex()),
    )
    return zlib.crc32("\n".join(map(str, fields)).encode())


def _header(entry: pb.StreamMessage) -> Header:
    raw = entry.header
    if raw.schema_version != SCHEMA_VERSION:
        raise ContractError("bad_schema", f"schema version {raw.schema_version}, this build reads {SCHEMA_VERSION}")
    if raw.HasField("header_checksum") and raw.header_checksum != _header_checksum(raw):
        raise ContractError("bad_checksum", "the header does not match its checksum")
    if not raw.group_id or not raw.run_id or raw.group_index < 0:
        raise ContractError("bad_header", f"group {raw.group_id!r}, run {raw.run_id!r}")
    return _HEADER.from_pb(raw)
