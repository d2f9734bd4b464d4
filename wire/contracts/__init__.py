"""Messages that cross a process border: dataclasses in a process, protobuf on the wire."""

from headrace.wire.contracts.codec import MAX_ENTRY_BYTES, decode, decode_header, encode
from headrace.wire.contracts.columns import ColumnFile, IdLists
from headrace.wire.contracts.episodes import EnvironmentReward, EnvironmentTask, Episode, Segment
from headrace.wire.contracts.ids import eval_group_id, group_id, rollout_id, rollout_seed, turn_seed
from headrace.wire.contracts.messages import (
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
    ScoredGroup,
    Tombstone,
    VersionSpan,
)
from headrace.wire.contracts.scores import Score
from headrace.wire.contracts.turns import JoinedTurns, PlayedTurns, Turn, join_turns, played_turns

__all__ = [
    "MAX_ENTRY_BYTES",
    "ColumnFile",
    "DropReason",
    "EnvironmentReward",
    "EnvironmentTask",
    "Episode",
    "FinishReason",
    "Header",
    "IdLists",
    "JoinedTurns",
    "Message",
    "PlayedTurns",
    "PolicyVersion",
    "PromptGroup",
    "Purpose",
    "Rollout",
    "RolloutGroup",
    "Sampling",
    "Score",
    "ScoredGroup",
    "Segment",
    "Tombstone",
    "Turn",
    "VersionSpan",
    "decode",
    "decode_header",
    "encode",
    "eval_group_id",
    "group_id",
    "join_turns",
    "played_turns",
    "rollout_id",
    "rollout_seed",
    "turn_seed",
]
