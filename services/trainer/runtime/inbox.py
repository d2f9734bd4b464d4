"""Consumes scored groups and tombstones from the stream. Entries stay unacked until the journal has them."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from headrace.services.trainer.durability.journaled_ledger import JournaledLedger
from headrace.services.trainer.durability.ledger import Arrival, ReadyGroup
from headrace.services.trainer.durability.staleness import generated_tokens
from headrace.services.trainer.runtime.token_limits import UNLIMITED, TokenLimits
from headrace.wire.contracts import (
    DropReason,
    Header,
    Message,
    Purpose,
    ScoredGroup,
    Tombstone,
    decode,
    decode_header,
    group_id,
)
from headrace.wire.errors import ContractError, TransientError, WaitTimeoutError
from headrace.wire.streams import Broker, Consumer, Entry, StreamName
from headrace.wire.streams.columns import with_kept
from headrace.wire.streams.worker import dead_put, is_lost
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.telemetry.metrics import DEAD_LETTERS

_READ_COUNT = 64
_BLOCK_S = 1.0
_RETRY_S = 0.5
_GIVEN_UP = {Arrival.UNINFORMATIVE: DropReason.UNINFORMATIVE, Arrival.ABSTAINED: DropReason.ABSTAINED}
"""Why a group that is not kept is dropped."""
log = get_logger("trainer.inbox")


class Inbox:
    """The only consumer of `scored`. Runs on the background loop."""

    def __init__(
        self,
        broker: Broker,
        ledger: JournaledLedger,
        *,
        run_id: str,
        lease_s: float,
        ended: Callable[[], None],
        limits: TokenLimits = UNLIMITED,
        run_dir: Path = Path(),
    ) -> None:
        self._consumer: Consumer = broker.consumer(StreamName.SCORED, "trainer", lease_s=lease_s)
        self._ledger = ledger
        self._run_id = run_id
        self._lease_s = lease_s
        self._ended = ended
        self._limits, self._run_dir = limits, run_dir
        self._held: dict[int, Entry] = {}
        self.trouble = ""
        """Why nothing can arrive: what the broker's last answer lacked; empty after a read."""

    async def run(self) -> None:
        """Consumes what an earlier life left pending, then new entries, until it is cancelled."""
        renewing = asyncio.create_task(self._renew())
        try:
            await self._with_retries(self._consumer.reclaim_own)
            while True:
                await self._with_retries(self._read)
        finally:
            renewing.cancel()

    async def ack(self, group_indices: Sequence[int]) -> None:
        """Acks groups that the journal has. A failure does no harm: a redelivered group is a known duplicate."""
        entries = [self._held.pop(index) for index in group_indices if index in self._held]
        try:
            await self._consumer.ack(entries)
        except TransientError as error:
            log.warning("ack_failed", groups=len(entries), reason=str(error))

    async def _read(self) -> list[Entry]:
        return await self._consumer.read(count=_READ_COUNT, block_s=_BLOCK_S)

    async def _with_retries(self, read: Callable[[], Awaitable[list[Entry]]]) -> None:
        """One read; an entry that cannot be settled now stays pending and comes again after its lease."""
        try:
            entries = await read()
        except TransientError as error:
            log.warning("broker_away", reason=str(error))
            self.trouble = f"the broker is away: {error}"
            await asyncio.sleep(_RETRY_S)
            return
        self.trouble = ""
        for entry in entries:
            try:
                await self._handle(entry)
            except (TransientError, WaitTimeoutError) as error:
                log.warning("entry_not_settled", entry=entry.id, reason=str(error))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                await self._consumer.renew(list(self._held.values()))
            except TransientError as error:
                log.warning("renew_failed", reason=str(error))

    async def _handle(self, entry: Entry) -> None:
        try:
            message = decode(entry.data)
            body = message.body
            self._check(message.header)
            if isinstance(body, ScoredGroup) and not self._ledger.knows(message.header.group_index):
                if body.group.kept is not None:
                    # Before it is journaled: a damaged file costs the group, which is issued again, and not the run.
                    body = await asyncio.to_thread(with_kept, self._run_dir, body)
                self._limits.check(body)
        except ContractError as error:
            await self._bury(entry, error)
            return
        match body:
            case ScoredGroup():
                await self._take(entry, _ready_group(message, body, entry.data))
            case Tombstone():
                await self._drop(entry, message.header.group_index, message.header.group_id, body.reason, body.lengths)
            case _:
                await self._bury(entry, ContractError("bad_body", "neither a scored group nor a tombstone"))

    def _check(self, header: Header) -> None:
        if header.run_id != self._run_id or header.purpose is not Purpose.TRAIN:
            raise ContractError("bad_header", f"{header.group_id} is {header.purpose} of the run {header.run_id}")
        if header.group_id != group_id(self._run_id, header.group_index):
            raise ContractError("bad_header", f"{header.group_id} is not the id of group {header.group_index}")

    async def _take(self, entry: Entry, group: ReadyGroup) -> None:
        held = self._held.get(group.group_index)
        if held is not None and held.id == entry.id:
            return  # Our own entry, delivered again because its lease ran out: still unacked, still ours.
        arrival = self._ledger.take(group)
        if arrival is Arrival.KEEP:
            self._held[group.group_index] = entry
        elif (reason := _GIVEN_UP.get(arrival)) is not None:
            spent = (generated_tokens(group.scored),)
            await self._drop(entry, group.group_index, group.group_id, reason, spent)
        elif held is not None:
            # Issued again while we hold it: the broker may have lost the older entry, so the newer one is kept pending.
            self._held[group.group_index] = entry
            await self._consumer.ack([held])
        else:
            await self._consumer.ack([entry])

    async def _drop(
        self, entry: Entry, group_index: int, name: str, reason: DropReason, lengths: Sequence[int] = ()
    ) -> None:
        """Journals the drop before the ack, and reports it at once, since it frees credit."""
        await asyncio.to_thread(self._ledger.drop, group_index, name, reason, lengths)
        self._ended()
        await self._consumer.ack([entry])

    async def _bury(self, entry: Entry, error: ContractError) -> None:
        """Moves the entry to the dead letters, for people; its group, if it can be identified, is dropped as poison."""
        log.error("bad_entry", entry=entry.id, code=error.code, reason=error.message)
        DEAD_LETTERS.labels(StreamName.SCORED, DropReason.POISON).inc()
        if not is_lost(entry.data, error):
            header = decode_header(entry.data)
            with contextlib.suppress(ContractError):  # Another run's, or another stream's.
                self._check(header)
                await asyncio.to_thread(self._ledger.drop, header.group_index, header.group_id, DropReason.POISON)
                self._ended()
        await self._consumer.settle(entry, [dead_put(entry.data, DropReason.POISON, str(error), "trainer")])


def _ready_group(message: Message, scored: ScoredGroup, data: bytes) -> ReadyGroup:
    spans = (span for rollout in scored.group.rollouts for span in rollout.spans)
    return ReadyGroup(
        group_index=message.header.group_index,
        group_id=message.header.group_id,
        min_version=scored.group.min_version,
        sources=frozenset((span.version, span.weights_digest) for span in spans),
        scored=scored,
        data=data,
    )
