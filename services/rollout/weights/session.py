"""The state of one publication on a replica."""

import asyncio
from dataclasses import dataclass, field

from headrace.services.rollout.replica.states import ReplicaState
from headrace.wire.contracts import PolicyVersion
from headrace.wire.v1 import common_pb2


@dataclass(slots=True, eq=False)
class UpdateSession:
    """One publication in progress."""

    publication_id: str
    version: PolicyVersion
    plan: common_pb2.WeightPlan
    came_from: ReplicaState
    expiry: asyncio.TimerHandle
    digests: list[str] = field(default_factory=list)
    received: bool = False
    installed: bool = False
    """The old weights may no longer be in place."""
    verified: bool = False
    swap: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while installed weights are modified, so that the session cannot be ended meanwhile."""
