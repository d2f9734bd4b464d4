"""At which moment of a publication a test strikes: sessions and groups that tell where they are."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from headrace.services.orchestrator.publication import coordinator
from headrace.services.orchestrator.publication.session import PublicationSession
from headrace.services.orchestrator.state.registry import Replica
from headrace.services.trainer.publication import sender
from headrace.wire.v1 import orchestrator_pb2 as pb
from headrace.wire.weights import CollectiveGroup

PHASES = ("prepare", "transfer", "verify", "commit")
_UNDER_WAY_S = 0.003


class Moment:
    """One phase of one version, at its beginning or in the middle of it; `act` happens once."""

    def __init__(
        self, phase: str, version: int, act: Callable[[], None], *, middle: bool = False, at: str = ""
    ) -> None:
        """`at`: only in a transfer to this replica."""
        self.phase = phase
        self.version = version
        self.act = act
        self.middle = middle
        self.at = at
        self.over = False

    def strike(self) -> None:
        if not self.over:
            self.over = True
            self.act()


class Watch:
    """What is to be struck next; shared by sessions and groups of this process."""

    moment: Moment | None = None

    @classmethod
    def of(cls, phase: str, version: int, *, middle: bool) -> Moment | None:
        moment = cls.moment
        fits = moment is not None and (moment.phase, moment.version, moment.middle) == (phase, version, middle)
        return moment if fits else None


class WatchedSession(PublicationSession):
    """Tells when its phases begin, and when their calls are under way."""

    def __init__(self, context: Any, request: pb.PublishRequest, publication_id: str) -> None:
        super().__init__(context, request, publication_id)
        self._asked = request.version

    async def _phase(
        self, name: str, deadline_s: float, members: Sequence[Replica], act: Callable[[Replica], Awaitable[None]]
    ) -> list[Replica]:
        if moment := Watch.of(name, self._asked, middle=False):
            moment.strike()
        moment = Watch.of(name, self._asked, middle=True)
        if moment is None or name == "transfer":
            return await super()._phase(name, deadline_s, members, act)
        striking = asyncio.create_task(_soon(moment))
        left = await super()._phase(name, deadline_s, members, act)
        await striking
        return left


async def _soon(moment: Moment) -> None:
    await asyncio.sleep(_UNDER_WAY_S)
    moment.strike()


class WatchedGroup(CollectiveGroup):
    """Strikes when the first bucket of a version has arrived and the second is to be sent."""

    buckets = 3
    """A version has so many."""

    def broadcast(self, tensor: Any, timeout_s: float) -> None:
        self.sent = getattr(self, "sent", 0) + 1
        moment = Watch.moment
        second = self.sent % self.buckets == 2
        if second and moment and moment.middle and moment.phase == "transfer" and self.name.startswith(moment.at):
            moment.strike()
        super().broadcast(tensor, timeout_s)


def watch_sessions() -> None:
    """In this process, from now on: the orchestrator's side."""
    coordinator.PublicationSession = WatchedSession  # type: ignore[misc]


def watch_groups() -> None:
    """In this process, from now on: the trainer's side."""
    sender.CollectiveGroup = WatchedGroup  # type: ignore[misc]


def install(patch: Any) -> None:
    """Both, for as long as `patch` lasts."""
    patch.setattr(coordinator, "PublicationSession", WatchedSession)
    patch.setattr(sender, "CollectiveGroup", WatchedGroup)
