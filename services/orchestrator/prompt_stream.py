"""The orchestrator's pen: the only producer of the prompts stream, with rising sequence numbers."""

import asyncio

from services.orchestrator.store import Store
from wire import tracing
from wire.contracts import Message, encode
from wire.streams import Broker, StreamName


class PromptStream:
    """Serializes number and XADD: a lower number after a higher one would be taken for a repetition."""

    def __init__(self, broker: Broker, store: Store) -> None:
        self._broker = broker
        self._store = store
        self._lock = asyncio.Lock()

    async def put(self, message: Message) -> None:
        """Adds a prompt once; raises TransientError if the broker stays away (then it may be there or not)."""
        data, header = encode(message), message.header
        # The first span of the group's trace: all services put theirs under it.
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
