"""The replica's state, the weights it serves with, and the gate that prompts and rollouts pass."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from headrace.services.rollout import metrics
from headrace.services.rollout.replica.states import ReplicaState, advance
from headrace.wire.contracts import PolicyVersion
from headrace.wire.process.lifecycle import wait_for

NO_VERSION = PolicyVersion(incarnation=0, version=0)
UPDATE_S = 3600.0
"""Upper bound only: a publication ends by its own deadline long before."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The committed weights."""

    version: PolicyVersion
    weights_digest: str


class Gate:
    """State changed by updates, GPU turns and shutdown, and watched by all other parts. On one event loop only."""

    def __init__(self) -> None:
        self.state = ReplicaState.STARTING
        self.serving: Serving | None = None
        self.has_served = False
        """Weights have been committed at least once in this process."""
        self.reason = ""
        """Why it is not serving."""
        self._slept = False
        """The previous state was SLEEPING."""
        self.changed = asyncio.Event()
        """Set at each change; cleared by the heartbeat loop, which waits for it."""
        self._wakes: set[asyncio.Event] = set()
        self._show()

    @property
    def is_open(self) -> bool:
        """Whether prompts may be taken and rollouts published."""
        return self.state is ReplicaState.SERVING

    @property
    def _asleep(self) -> bool:
        """Whether the replica sleeps, or is in the publication that wakes it."""
        waking = self.state is ReplicaState.UPDATING and self._slept
        return self.state is ReplicaState.SLEEPING or waking

    @property
    def version(self) -> PolicyVersion:
        """Version of the committed weights; 0.0 if there are none."""
        return self.serving.version if self.serving is not None else NO_VERSION

    def why_not_ready(self) -> str | None:
        """None while there are weights to serve with (also in a publication, or asleep); otherwise the reason."""
        if self.serving is not None and self.state in (ReplicaState.SERVING, ReplicaState.UPDATING):
            return None
        if self.has_served and self._asleep:
            return None
        return f"{self.state}: {self.reason or 'no weights yet'}"

    def move(self, target: ReplicaState, reason: str = "") -> None:
        """Moves to `target`; raises IllegalTransitionError for a transition that is a bug."""
        self._slept = self.state is ReplicaState.SLEEPING
        self.state = advance(self.state, target)
        self.reason = reason
        self.notify()

    def commit(self, serving: Serving) -> None:
        """Starts serving new weights and opens the gate."""
        self.serving, self.has_served = serving, True
        self.move(ReplicaState.SERVING)

    def disown(self, target: ReplicaState, reason: str) -> None:
        """Declares the engine's weights invalid: no version is served until the next commit."""
        self.serving = None
        self.move(target, reason)

    def wakes(self, event: asyncio.Event) -> None:
        """Sets `event` at each change."""
        self._wakes.add(event)

    async def settle(self) -> bool:
        """Waits for a publication in progress to end; returns whether verified weights serve then."""
        await self.wait_until(lambda: self.state is not ReplicaState.UPDATING, UPDATE_S, "the publication to end")
        return self.is_open

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Waits until `condition` holds, checked after each change; raises WaitTimeoutError naming `what`."""
        wake = asyncio.Event()
        self._wakes.add(wake)

        async def watch() -> None:
            while not condition():
                wake.clear()
                await wake.wait()

        try:
            await wait_for(watch(), timeout_s, what)
        finally:
            self._wakes.discard(wake)

    def notify(self) -> None:
        """Wakes all watchers; called also when conditions besides the state have changed."""
        self.changed.set()
        for wake in self._wakes:
            wake.set()
        self._show()

    def _show(self) -> None:
        for state in ReplicaState:
            metrics.STATE.labels(state.value).set(state is self.state)
        metrics.VERSION.set(self.version.version)
