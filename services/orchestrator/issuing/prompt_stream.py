"""The only producer of the prompts stream; numbers the entries with increasing sequence numbers."""

import asyncio

from headrace.services.orchestrator.state.store import Store
from headrace.wire import tracing
from headrace.wire.contracts import Message, encode
from headrace.wire.streams import Broker, StreamName


class PromptStream:
    """Serializes numbering and XADD: a lower number after a higher one would be taken for a duplicate."""

    def __init__(self, broker: Broker, store: Store) -> None:
        self._broker = broker
        self._store = store
        self._lock = asyncio.Lock()

    async def put(self, message: Message) -> None:
        """Adds a prompt once; raises TransientError if the broker stays away (it may or may not have been added)."""
        data, header = encode(message), message.header
        # The root span of the group's trace: all services add theirs under it.
        with tracing.span("issue", header.traceparent, first=True, group_id=header.group_id) as span:
            span.set(attempt=header.attempt, purpose=header.purpose.value)
            await self._put(data)

    async def _put(self, data: bytes) -> None:
        async with self._lock:
            sequence = self._store.get_int("sequence")
            if not sequence:
                sequence = await self._broker.last_sequence(StreamName.PROMPTS)
            self._store.set_int("sequence", sequence + 1)
            await self._broker.add(StreamName.PROMPTS, data, sequence=sequence + 1)
