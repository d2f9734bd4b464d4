"""Converts episodes and their tasks between protobuf and dataclasses."""

from headrace.wire.contracts.arrays import ids_from_bytes, ids_to_bytes
from headrace.wire.contracts.episodes import EnvironmentReward, EnvironmentTask, Episode, Segment
from headrace.wire.v1 import message_pb2 as pb


def task_to_pb(task: EnvironmentTask) -> pb.EnvironmentTask:
    """The protobuf form of a task."""
    return pb.EnvironmentTask(name=task.name, digest=task.digest, task_json=task.task_json)


def task_from_pb(raw: pb.EnvironmentTask) -> EnvironmentTask:
    """The dataclass form of a task; raises ContractError for what the contract forbids."""
    return EnvironmentTask(name=raw.name, digest=raw.digest, task_json=raw.task_json)


def episode_to_pb(episode: Episode) -> pb.Episode:
    """The protobuf form of an episode."""
    reward = episode.reward
    return pb.Episode(
        segments=[pb.Segment(start=one.start, context_ids=ids_to_bytes(one.context_ids)) for one in episode.segments],
        turn_ends=episode.turn_ends,
        turn_rewards=episode.turn_rewards,
        reward=None
        if reward is None
        else pb.EnvironmentReward(value=reward.value, components=reward.components, metrics=reward.metrics),
        messages_json=episode.messages_json,
        error=episode.error,
    )


def episode_from_pb(raw: pb.Episode) -> Episode:
    """The dataclass form of an episode; raises ContractError for what the contract forbids."""
    return Episode(
        segments=tuple(Segment(start=one.start, context_ids=ids_from_bytes(one.context_ids)) for one in raw.segments),
        turn_ends=tuple(raw.turn_ends),
        turn_rewards=tuple(raw.turn_rewards),
        reward=_reward_from_pb(raw.reward) if raw.HasField("reward") else None,
        messages_json=raw.messages_json,
        error=raw.error,
    )


def _reward_from_pb(raw: pb.EnvironmentReward) -> EnvironmentReward:
    return EnvironmentReward(
        value=raw.value if raw.HasField("value") else None,
        components=dict(raw.components),
        metrics=dict(raw.metrics),
    )
