"""The only producer of the streams in which groups begin; numbers their entries with increasing sequence numbers."""

import asyncio
import contextlib

from headrace.services.orchestrator.state.store import Store
from headrace.wire import tracing
from headrace.wire.contracts import Header, Message, PromptGroup, decode_header, encode
from headrace.wire.errors import ContractError
from headrace.wire.streams import Broker, StreamName

_COUNTERS = {StreamName.PROMPTS: "sequence", StreamName.EPISODES: "sequence_episodes"}
"""Key of the store that has the last number of the stream which may be used."""
_AT_ONCE = 256


def begins_in(message: Message) -> StreamName:
    """The stream in which a group begins: `episodes` if it has an environment."""
    played = isinstance(message.body, PromptGroup) and message.body.environment is not None
    return StreamName.EPISODES if played else StreamName.PROMPTS


async def live_headers(broker: Broker, *streams: StreamName) -> list[Header]:
    """Headers of the entries in these streams. Raises TransientError.

    What cannot be decoded is left out: its consumer will dead-letter it, and its group counts as lost.
    """
    found = []
    for stream in streams:
        for data in await broker.live(stream):
            with contextlib.suppress(ContractError):
                found.append(decode_header(data))
    return found


class PromptStream:
    """Serializes numbering and XADD: a lower number after a higher one would be taken for a duplicate."""

    def __init__(self, broker: Broker, store: Store) -> None:
        self._broker = broker
        self._store = store
        self._lock = asyncio.Lock()
        self._reserved: dict[StreamName, range] = {}
        """Numbers that the store counts as used and no entry has yet: a crash skips them."""

    async def put(self, message: Message) -> None:
        """Adds a group once; raises TransientError if the broker stays away (it may or may not have been added)."""
        data, header = encode(message), message.header
        # The root span of the group's trace: all services add theirs under it.
        with tracing.span("issue", header.traceparent, first=True, group_id=header.group_id) as span:
            span.set(attempt=header.attempt, purpose=header.purpose.value)
            await self._put(begins_in(message), data)

    async def _put(self, stream: StreamName, data: bytes) -> None:
        async with self._lock:
            numbers = self._reserved.get(stream) or await self._reserve(stream)
            self._reserved[stream] = numbers[1:]
            await self._broker.add(stream, data, sequence=numbers[0])

    async def _reserve(self, stream: StreamName) -> range:
        """Further numbers, written once for all of them: a commit waits for the disk."""
        last = self._store.get_int(_COUNTERS[stream]) or await self._broker.last_sequence(stream)
        self._store.set_int(_COUNTERS[stream], last + _AT_ONCE)
        return range(last + 1, last + 1 + _AT_ONCE)
