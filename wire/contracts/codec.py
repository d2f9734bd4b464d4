"""Converts messages between protobuf bytes and frozen dataclasses; no other module knows both forms."""

import json
import zlib
from types import MappingProxyType

from google.protobuf.message import DecodeError

from headrace.wire.contracts.arrays import (
    floats_from_bytes,
    floats_to_bytes,
    ids_from_bytes,
    ids_to_bytes,
    mask_from_bytes,
    mask_to_bytes,
)
from headrace.wire.contracts.episode_codec import episode_from_pb, episode_to_pb, task_from_pb, task_to_pb
from headrace.wire.contracts.messages import (
    SCHEMA_VERSION,
    Body,
    DropReason,
    Header,
    Message,
    PromptGroup,
    Purpose,
    Rollout,
    RolloutGroup,
    ScoredGroup,
    Tombstone,
)
from headrace.wire.contracts.sampling_codec import (
    FINISH_FROM_PB,
    FINISH_TO_PB,
    sampling_from_pb,
    sampling_to_pb,
    spans_from_pb,
    spans_to_pb,
)
from headrace.wire.contracts.score_codec import score_from_pb, score_to_pb
from headrace.wire.errors import ContractError
from headrace.wire.v1 import message_pb2 as pb

MAX_ENTRY_BYTES = 64 * 1024 * 1024
"""A larger stream entry is refused at the door."""

_PURPOSE = MappingProxyType({Purpose.TRAIN: pb.PURPOSE_TRAIN, Purpose.EVAL: pb.PURPOSE_EVAL})


def encode(message: Message) -> bytes:
    """Serializes a message for a stream; raises ContractError (`too_large`) beyond `MAX_ENTRY_BYTES`."""
    kind, payload = _body_to_pb(message.body)
    header = message.header
    entry = pb.StreamMessage(
        header=pb.Header(
            schema_version=SCHEMA_VERSION,
            run_id=header.run_id,
            purpose=_PURPOSE[header.purpose],
            group_index=header.group_index,
            group_id=header.group_id,
            attempt=header.attempt,
            traceparent=header.traceparent,
            issued_at=header.issued_at,
            checksum=zlib.crc32(payload),
        )
    )
    entry.header.header_checksum = _header_checksum(entry.header)
    setattr(entry, kind, payload)
    data = entry.SerializeToString()
    if len(data) > MAX_ENTRY_BYTES:
        raise ContractError("too_large", f"{header.group_id}: {len(data)} bytes, the limit is {MAX_ENTRY_BYTES}")
    return data


def _body_to_pb(body: Body) -> tuple[str, bytes]:
    match body:
        case PromptGroup():
            return "prompt_group", _prompt_to_pb(body).SerializeToString()
        case RolloutGroup():
            return "rollout_group", group_to_pb(body).SerializeToString()
        case ScoredGroup():
            return "scored_group", _scored_to_pb(body).SerializeToString()
        case Tombstone():
            tombstone = pb.Tombstone(reason=body.reason, detail=body.detail, service=body.service, lengths=body.lengths)
            return "tombstone", tombstone.SerializeToString()


def decode_header(data: bytes) -> Header:
    """Reads only the header: enough to give up an entry whose body is damaged."""
    return _header(_parse(data))


def decode(data: bytes) -> Message:
    """Reads a stream entry; raises ContractError for what the contract forbids (checksum, lengths, ranges)."""
    entry = _parse(data)
    header = _header(entry)
    kind = entry.WhichOneof("body")
    if kind is None:
        raise ContractError("bad_schema", f"{header.group_id}: the message has no known body")
    payload: bytes = getattr(entry, kind)
    if zlib.crc32(payload) != entry.header.checksum:
        raise ContractError("bad_checksum", f"{header.group_id}: the payload does not match its checksum")
    try:
        match kind:
            case "prompt_group":
                return Message(header=header, body=_prompt_from_pb(pb.PromptGroup.FromString(payload)))
            case "rollout_group":
                return Message(header=header, body=group_from_pb(pb.RolloutGroup.FromString(payload)))
            case "scored_group":
                return Message(header=header, body=_scored_from_pb(pb.ScoredGroup.FromString(payload)))
            case _:
                return Message(header=header, body=_tombstone_from_pb(pb.Tombstone.FromString(payload)))
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
    purposes = {number: purpose for purpose, number in _PURPOSE.items()}
    if raw.purpose not in purposes or not raw.group_id or not raw.run_id or raw.group_index < 0:
        raise ContractError("bad_header", f"purpose {raw.purpose}, group {raw.group_id!r}, run {raw.run_id!r}")
    return Header(
        run_id=raw.run_id,
        purpose=purposes[raw.purpose],
        group_index=raw.group_index,
        group_id=raw.group_id,
        attempt=raw.attempt,
        traceparent=raw.traceparent,
        issued_at=raw.issued_at,
    )


def _prompt_to_pb(value: PromptGroup) -> pb.PromptGroup:
    return pb.PromptGroup(
        sample_id=value.sample_id,
        token_ids=ids_to_bytes(value.token_ids),
        group_size=value.group_size,
        sampling=sampling_to_pb(value.sampling),
        min_version=value.min_version,
        columns_json=json.dumps(value.columns, sort_keys=True),
        eval_version=value.eval_version,
        text=value.text,
        environment=None if value.environment is None else task_to_pb(value.environment),
    )


def _prompt_from_pb(raw: pb.PromptGroup) -> PromptGroup:
    try:
        columns = json.loads(raw.columns_json or "{}")
    except (ValueError, RecursionError) as error:
        raise ContractError("bad_bytes", f"{raw.sample_id}: columns: {error}") from error
    if not isinstance(columns, dict):
        raise ContractError("bad_columns", f"{raw.sample_id}: columns are not a JSON object")
    return PromptGroup(
        sample_id=raw.sample_id,
        token_ids=ids_from_bytes(raw.token_ids),
        group_size=raw.group_size,
        sampling=sampling_from_pb(raw.sampling),
        min_version=raw.min_version,
        columns=columns,
        eval_version=raw.eval_version,
        text=raw.text,
        environment=task_from_pb(raw.environment) if raw.HasField("environment") else None,
    )


def _rollout_to_pb(value: Rollout) -> pb.Rollout:
    return pb.Rollout(
        rollout_id=value.rollout_id,
        token_ids=ids_to_bytes(value.token_ids),
        logprobs=floats_to_bytes(value.logprobs),
        finish_reason=FINISH_TO_PB[value.finish_reason],
        spans=spans_to_pb(value.spans),
        text=value.text,
        loss_mask=b"" if value.loss_mask is None else mask_to_bytes(value.loss_mask),
        episode=None if value.episode is None else episode_to_pb(value.episode),
    )


def _rollout_from_pb(raw: pb.Rollout) -> Rollout:
    if raw.finish_reason not in FINISH_FROM_PB:
        raise ContractError("bad_finish_reason", f"{raw.rollout_id}: {raw.finish_reason}")
    return Rollout(
        rollout_id=raw.rollout_id,
        token_ids=ids_from_bytes(raw.token_ids),
        logprobs=floats_from_bytes(raw.logprobs),
        finish_reason=FINISH_FROM_PB[raw.finish_reason],
        spans=spans_from_pb(raw.spans),
        text=raw.text,
        loss_mask=mask_from_bytes(raw.loss_mask) if raw.loss_mask else None,
        episode=episode_from_pb(raw.episode) if raw.HasField("episode") else None,
    )


def group_to_pb(value: RolloutGroup) -> pb.RolloutGroup:
    """The protobuf form of a group (the reward service's gRPC call uses it directly)."""
    return pb.RolloutGroup(
        prompt=_prompt_to_pb(value.prompt),
        rollouts=[_rollout_to_pb(rollout) for rollout in value.rollouts],
        replica_id=value.replica_id,
        seconds=value.seconds,
    )


def group_from_pb(raw: pb.RolloutGroup) -> RolloutGroup:
    """The dataclass form of a group; raises ContractError for what the contract forbids."""
    return RolloutGroup(
        prompt=_prompt_from_pb(raw.prompt),
        rollouts=tuple(_rollout_from_pb(rollout) for rollout in raw.rollouts),
        replica_id=raw.replica_id,
        seconds=raw.seconds,
    )


def _scored_to_pb(value: ScoredGroup) -> pb.ScoredGroup:
    return pb.ScoredGroup(
        group=group_to_pb(value.group),
        scores=[score_to_pb(score) for score in value.scores],
        scorer_version=value.scorer_version,
        versions=value.versions,
    )


def _scored_from_pb(raw: pb.ScoredGroup) -> ScoredGroup:
    return ScoredGroup(
        group=group_from_pb(raw.group),
        scores=tuple(score_from_pb(score) for score in raw.scores),
        scorer_version=raw.scorer_version,
        versions=dict(raw.versions),
    )


def _tombstone_from_pb(raw: pb.Tombstone) -> Tombstone:
    try:
        reason = DropReason(raw.reason)
    except ValueError as error:
        raise ContractError("bad_reason", f"{raw.reason!r} is not one of {', '.join(DropReason)}") from error
    return Tombstone(reason=reason, detail=raw.detail, service=raw.service, lengths=tuple(raw.lengths))
