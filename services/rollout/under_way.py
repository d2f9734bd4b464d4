"""Training groups that are being generated, and the end of those that are no longer needed.

A group that has a fate in the trainer's journal is ended here: it was dropped, or another copy of it was trained. With
`run.stale = "drop"` this replica asks for that fate itself: a group whose oldest token is more than `max_staleness`
versions behind the weights that are committed here can be in no batch any more. Its tombstone goes onto the stream, and
the group goes on until the orchestrator tells that the trainer has journaled its end: killed at any moment, it is
neither lost nor doubled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from services.rollout import metrics
from services.rollout.engines.protocol import Completion, Engine
from wire.contracts import DropReason, Header, Message, Tombstone, encode
from wire.errors import HeadraceError
from wire.streams import Broker, StreamName
from wire.telemetry import get_logger

log = get_logger("rollout.under_way")

_LOOK_S = 0.5


class EndedError(HeadraceError):
    """The group has a fate: its rollouts are of no use."""


@dataclass(slots=True, eq=False)
class _Group:
    header: Header
    version: int
    """Committed here when it was handed to the engine: no token of it is older."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    is_given_up: bool = False
    """Its tombstone is on the stream."""


class UnderWay:
    """On the event loop only."""

    def __init__(self) -> None:
        self._groups: set[_Group] = set()

    @property
    def indices(self) -> list[int]:
        """Of the groups, rising."""
        return sorted({group.header.group_index for group in self._groups})

    async def generate(
        self, header: Header, version: int, completions: Awaitable[tuple[Completion, ...]]
    ) -> tuple[Completion, ...]:
        """What the engine makes of the group; raises EndedError, and gives the engine up, once it has a fate."""
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
        """These have a fate."""
        ended = set(indices)
        for group in self._groups:
            if group.header.group_index in ended:
                group.ended.set()

    async def give_up_stale(
        self, engine: Engine, broker: Broker, version: Callable[[], int], max_staleness: int
    ) -> None:
        """Looks for groups that have become too old, again and again; never ends by itself."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._look(engine, broker, version() - max_staleness)
            except HeadraceError as error:
                log.warning("stale_not_told", error=str(error))

    async def _look(self, engine: Engine, broker: Broker, oldest: int) -> None:
        """`oldest`: a token of a version below it can be in no batch any more."""
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
