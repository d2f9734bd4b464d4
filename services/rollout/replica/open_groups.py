"""Training groups being generated, and the cancellation of those no longer needed.

A group that has a fate in the trainer's journal is cancelled: it was dropped, or another copy of it was trained. With
`run.stale = "drop"` this replica initiates that itself: a group whose oldest token is more than `max_staleness`
versions behind the weights committed here fits into no batch any more. Its tombstone is put on the stream, and the
group continues until the orchestrator reports that the trainer has journaled its end: after a crash at any moment, the
group is neither lost nor duplicated.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from headrace.services.rollout import metrics
from headrace.services.rollout.engines.protocol import Completion, Engine
from headrace.wire.contracts import DropReason, Header, Message, Tombstone, encode
from headrace.wire.errors import HeadraceError
from headrace.wire.streams import Broker, StreamName
from headrace.wire.telemetry.logs import get_logger

log = get_logger("rollout.under_way")

_LOOK_S = 0.5


class EndedError(HeadraceError):
    """The group has a fate already: its rollouts are of no use."""


@dataclass(slots=True, eq=False)
class _Group:
    header: Header
    version: int
    """Version committed here when the group was submitted to the engine: none of its tokens is older."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    is_given_up: bool = False
    """Its tombstone is on the stream."""


class OpenGroups:
    """The open training groups of this replica. Used on the event loop only."""

    def __init__(self) -> None:
        self._groups: set[_Group] = set()

    @property
    def indices(self) -> list[int]:
        """Indices of the open groups, ascending."""
        return sorted({group.header.group_index for group in self._groups})

    async def generate(
        self, header: Header, version: int, completions: Awaitable[tuple[Completion, ...]]
    ) -> tuple[Completion, ...]:
        """Returns the engine's completions; once the group has a fate, cancels generation and raises EndedError."""
        group = _Group(header, version)
        self._groups.add(group)
        generating = asyncio.ensure_future(completions)
        ending = asyncio.ensure_future(group.ended.wait())
        try:
            await asyncio.wait({generating, ending}, return_when=asyncio.FIRST_COMPLETED)
            if generating.done():
                return generating.result()
            raise EndedError(f"{header.group_id} has a fate already")
        finally:
            self._groups.discard(group)
            ending.cancel()
            generating.cancel()
            await asyncio.gather(generating, ending, return_exceptions=True)

    def end(self, indices: Iterable[int]) -> None:
        """Ends the groups with these indices, which have a fate."""
        ended = set(indices)
        for group in self._groups:
            if group.header.group_index in ended:
                group.ended.set()

    async def give_up_stale(
        self, engine: Engine, broker: Broker, version: Callable[[], int], max_staleness: int
    ) -> None:
        """Periodically gives up groups that have become too old. Runs until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._look(engine, broker, version() - max_staleness)
            except HeadraceError as error:
                log.warning("stale_not_told", error=str(error))

    async def _look(self, engine: Engine, broker: Broker, oldest: int) -> None:
        """Publishes tombstones of groups with a token older than version `oldest`, which fit into no batch any more."""
        for group in [one for one in self._groups if not one.is_given_up and one.version < oldest]:
            name = group.header.group_id
            begun = await engine.begun(name)
            if begun is None or begun.oldest >= oldest:
                continue
            detail = f"its oldest token is of version {begun.oldest}, the oldest that can be trained is {oldest}"
            dead = Tombstone(reason=DropReason.STALE, detail=detail, service="rollout", lengths=begun.lengths)
            await broker.add(StreamName.SCORED, encode(Message(header=group.header, body=dead)))
            group.is_given_up = True
            metrics.GIVEN_UP.inc()
            log.info("given_up_as_stale", group_id=name, tokens=sum(begun.lengths), detail=detail)
