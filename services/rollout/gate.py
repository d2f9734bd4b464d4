"""The replica's state, the weights it serves with, and the gate that prompts and rollouts pass."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from services.rollout import metrics
from services.rollout.replica import ReplicaState, advance
from wire.contracts import PolicyVersion
from wire.lifecycle import wait_for

NO_VERSION = PolicyVersion(incarnation=0, version=0)


@dataclass(frozen=True, slots=True)
class Serving:
    """The committed weights."""

    version: PolicyVersion
    weights_digest: str


class Gate:
    """Changed by updates and shutdown, watched by everybody else; lives on one event loop."""

    def __init__(self) -> None:
        self.state = ReplicaState.STARTING
        self.serving: Serving | None = None
        self.has_served = False
        """Weights were committed once in this life."""
        self.reason = ""
        """Why it is not serving, in words."""
        self._slept = False
        """In the state before this one."""
        self.changed = asyncio.Event()
        """Set with each change; whoever waits for changes clears it."""
        self._condition_waiters: set[asyncio.Event] = set()
        self._show()

    @property
    def is_open(self) -> bool:
        """Prompts may come in and rollouts go out."""
        return self.state is ReplicaState.SERVING

    @property
    def _asleep(self) -> bool:
        """Sleeping, or in the publication that wakes it."""
        waking = self.state is ReplicaState.UPDATING and self._slept
        return self.state is ReplicaState.SLEEPING or waking

    @property
    def version(self) -> PolicyVersion:
        """Of the committed weights; 0.0 before the first."""
        return self.serving.version if self.serving is not None else NO_VERSION

    def why_not_ready(self) -> str | None:
        """None while there are weights to serve with (also in a publication), else the reason."""
        if self.serving is not None and self.state in (ReplicaState.SERVING, ReplicaState.UPDATING):
            return None
        if self.has_served and self._asleep:
            return None
        return f"{self.state}: {self.reason or 'no weights yet'}"

    def move(self, target: ReplicaState, reason: str = "") -> None:
        """Advances the state; raises IllegalTransitionError for a bug."""
        self._slept = self.state is ReplicaState.SLEEPING
        self.state = advance(self.state, target)
        self.reason = reason
        self.tell()

    def commit(self, serving: Serving) -> None:
        """New weights serve; the gate opens."""
        self.serving, self.has_served = serving, True
        self.move(ReplicaState.SERVING)

    def disown(self, target: ReplicaState, reason: str) -> None:
        """The weights in the engine are nobody's: no version is served until the next commit."""
        self.serving = None
        self.move(target, reason)

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Waits until `condition` holds, looking after each change; raises WaitTimeoutError naming `what`."""
        wake = asyncio.Event()
        self._condition_waiters.add(wake)

        async def watch() -> None:
            while not condition():
                wake.clear()
                await wake.wait()

        try:
            await wait_for(watch(), timeout_s, what)
        finally:
            self._condition_waiters.discard(wake)

    def tell(self) -> None:
        """Wakes all that watch; also for what others decide by beside the state."""
        self.changed.set()
        for wake in self._condition_waiters:
            wake.set()
        self._show()

    def _show(self) -> None:
        for state in ReplicaState:
            metrics.STATE.labels(state.value).set(state is self.state)
        metrics.VERSION.set(self.version.version)
