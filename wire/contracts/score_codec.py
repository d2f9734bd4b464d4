"""Converts scores between protobuf and dataclasses."""

from headrace.wire.contracts.arrays import floats_from_bytes, floats_to_bytes
from headrace.wire.contracts.scores import Score
from headrace.wire.v1 import message_pb2 as pb

_NO_ANSWER = -1


def score_to_pb(score: Score) -> pb.Score:
    """The protobuf form of a score."""
    return pb.Score(
        rollout_id=score.rollout_id,
        value=0.0 if score.value is None else score.value,
        abstained=score.value is None,
        components=score.components,
        reason=score.reason,
        seconds=score.seconds,
        token_scores=b"" if score.token_scores is None else floats_to_bytes(score.token_scores),
        answer_start=_NO_ANSWER if score.answer_start is None else score.answer_start,
    )


def score_from_pb(raw: pb.Score) -> Score:
    """The dataclass form of a score; raises ContractError for what the contract forbids."""
    return Score(
        rollout_id=raw.rollout_id,
        value=None if raw.abstained else raw.value,
        components=dict(raw.components),
        reason=raw.reason,
        seconds=dict(raw.seconds),
        token_scores=floats_from_bytes(raw.token_scores) if raw.token_scores else None,
        answer_start=None if raw.answer_start == _NO_ANSWER else raw.answer_start,
    )
