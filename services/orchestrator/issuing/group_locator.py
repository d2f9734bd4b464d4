"""Describes where a group is that the trainer waits for."""

import time

from headrace.services.orchestrator.issuing.prompt_stream import live_headers
from headrace.services.orchestrator.state.environment_workers import EnvironmentWorkers
from headrace.services.orchestrator.state.registry import Registry
from headrace.wire.contracts import Purpose
from headrace.wire.errors import TransientError
from headrace.wire.streams import TRAINING_FLOW, Broker, StreamName

_LOOK_AGAIN_S = 10.0
"""Time between two queries of the broker: each reads all entries of a stream."""
_WORDS = {
    StreamName.EPISODES: "its episodes are not at their end: it is in the stream of episodes",
    StreamName.PROMPTS: "no replica has begun it: it is in the stream of prompts",
    StreamName.ROLLOUTS: "it is generated, and waits for its score",
    StreamName.SCORED: "it is scored, and on its way to the trainer",
}


class GroupLocator:
    """Locates a group by the reports of replicas and workers; queries the broker, rarely, only if none has it."""

    def __init__(
        self,
        registry: Registry,
        broker: Broker,
        *,
        environments: EnvironmentWorkers | None = None,
    ) -> None:
        self._registry = registry
        self._environments = environments
        self._broker = broker
        self._index = -1
        self._looked_at = 0.0
        self._seen = ""

    async def of(self, group_index: int) -> str:
        """The group's location, such as `rollout-1 generates it`; empty while unknown."""
        now = time.monotonic()
        own = [one.replica_id for one in self._registry.alive(now) if group_index in one.groups]
        if own:
            self._index = -1
            return f"{' and '.join(own)} generate{'s' if len(own) == 1 else ''} it"
        played = self._environments.place_of(group_index, now) if self._environments is not None else ""
        if played:
            self._index = -1
            return played
        if self._index != group_index:
            # It will most likely move on before a query is worth its cost.
            self._index, self._looked_at, self._seen = group_index, now, ""
        elif now - self._looked_at > _LOOK_AGAIN_S:
            self._looked_at = now
            self._seen = await self._look(group_index)
        return self._seen

    async def _look(self, group_index: int) -> str:
        try:
            for stream in TRAINING_FLOW:
                if await self._holds(stream, group_index):
                    return _WORDS[stream]
        except TransientError as error:
            return f"its place is unknown: {error}"
        return "it is in no stream, and will be issued again"

    async def _holds(self, stream: StreamName, group_index: int) -> bool:
        headers = await live_headers(self._broker, stream)
        return any(one.group_index == group_index and one.purpose is Purpose.TRAIN for one in headers)
