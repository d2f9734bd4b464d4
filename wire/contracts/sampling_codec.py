"""Converts how tokens were sampled between protobuf and dataclasses: parameters, versions, how it ended."""

from collections.abc import Iterable
from types import MappingProxyType

from headrace.wire.contracts.messages import FinishReason, PolicyVersion, Sampling, VersionSpan
from headrace.wire.v1 import message_pb2 as pb

FINISH_TO_PB = MappingProxyType(
    {
        FinishReason.STOP: pb.FINISH_REASON_STOP,
        FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
        FinishReason.TURN_LIMIT: pb.FINISH_REASON_TURN_LIMIT,
        FinishReason.TIME: pb.FINISH_REASON_TIME,
        FinishReason.ENVIRONMENT_ERROR: pb.FINISH_REASON_ENVIRONMENT_ERROR,
        FinishReason.TOOL_LOST: pb.FINISH_REASON_TOOL_LOST,
    }
)

FINISH_FROM_PB = MappingProxyType({number: reason for reason, number in FINISH_TO_PB.items()})


def sampling_to_pb(value: Sampling) -> pb.Sampling:
    """The protobuf form of sampling parameters."""
    return pb.Sampling(
        temperature=value.temperature,
        top_k=value.top_k,
        top_p=value.top_p,
        max_tokens=value.max_tokens,
        stop_token_ids=value.stop_token_ids,
        seed=value.seed,
        greedy=value.greedy,
        forced_lengths=value.forced_lengths,
        greedy_last=value.greedy_last,
    )


def sampling_from_pb(raw: pb.Sampling) -> Sampling:
    """The dataclass form of sampling parameters; raises ContractError for what the contract forbids."""
    return Sampling(
        temperature=raw.temperature,
        top_k=raw.top_k,
        top_p=raw.top_p,
        max_tokens=raw.max_tokens,
        stop_token_ids=tuple(raw.stop_token_ids),
        seed=raw.seed,
        greedy=raw.greedy,
        forced_lengths=tuple(raw.forced_lengths),
        greedy_last=raw.greedy_last,
    )


def spans_to_pb(spans: Iterable[VersionSpan]) -> list[pb.VersionSpan]:
    """The protobuf form of version spans."""
    return [
        pb.VersionSpan(
            start=span.start,
            end=span.end,
            version=pb.PolicyVersion(incarnation=span.version.incarnation, version=span.version.version),
            weights_digest=span.weights_digest,
        )
        for span in spans
    ]


def spans_from_pb(raw: Iterable[pb.VersionSpan]) -> tuple[VersionSpan, ...]:
    """The dataclass form of version spans."""
    return tuple(
        VersionSpan(
            start=span.start,
            end=span.end,
            version=PolicyVersion(incarnation=span.version.incarnation, version=span.version.version),
            weights_digest=span.weights_digest,
        )
        for span in raw
    )
