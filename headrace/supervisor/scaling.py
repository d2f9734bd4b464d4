"""Scales a service to another number of replicas during the run."""

import itertools
from collections.abc import Callable

from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.process_monitor import Notice
from headrace.supervisor.processes import ProcessSet
from headrace.wire.errors import ConfigError

MOST = 256
"""Most replicas on one machine."""

SERVICES = ("rollout", "reward", "environment")
"""Services that have replicas."""

PlanReplica = Callable[[str, int], ProcessPlan]
"""Writes the config of a replica and returns its plan; raises ConfigError if there is no port or GPU for it."""


def check_count(text: str) -> int:
    """Parses a number of replicas given by the user. Raises ConfigError if it is not one, or too large."""
    try:
        count = int(text)
    except ValueError:
        raise ConfigError(f"the number of replicas must be a whole number, not {text!r}") from None
    if not 0 <= count <= MOST:
        raise ConfigError(f"the number of replicas must be 0 to {MOST}, not {count}")
    return count


class Scaling:
    """Moves the running replicas towards the requested number; each `step` does what can be done now."""

    def __init__(
        self,
        service: str,
        processes: ProcessSet,
        plan: PlanReplica,
        start: Callable[[ProcessPlan], None],
        *,
        grace_s: float,
        notice: Notice,
    ) -> None:
        self._service, self._processes, self._plan, self._start = service, processes, plan, start
        self._grace_s, self._notice = grace_s, notice
        self._wanted: int | None = None
        """None until the first request: the replicas are then those that the run began with."""

    def ask(self, count: int) -> None:
        """Sets the number of replicas and takes the first step."""
        self._wanted = count
        self._processes.try_again(self._belongs)
        self.step()

    def situation(self) -> str:
        """Explains why the last step did nothing."""
        running = len(self._processes.staying(self._belongs))
        if self._wanted is not None and self._wanted < running:
            return f"{running - self._wanted} will drain once those that stay are ready"
        if self._wanted is None or self._wanted == running:
            return f"there are {running} replicas already"
        return f"{self._wanted - running} will be started when those before them have drained"

    def step(self) -> None:
        """Starts missing replicas and drains the highest ones; one that still drains is restarted after its end."""
        if self._wanted is None:
            return
        for name, error in self._processes.take_failed(self._belongs):
            self._give_up(self._index(name), str(error))
        indices = self._indices(self._wanted)
        for index in indices:
            if self._processes.monitor(self._name(index)) is None and not self._start_one(index):
                return
        # A low one that is tried again may fail: until it works, those above it do.
        if not all(self._processes.has_been_ready(self._name(index)) for index in indices):
            return
        for name in self._processes.staying(self._belongs):
            if self._index(name) not in indices:
                self._processes.dismiss(name, self._grace_s)
                self._notice(f"{name} drains")

    def _indices(self, count: int) -> list[int]:
        """The lowest numbers of so many replicas, without those that were given up."""
        free = (index for index in itertools.count() if not self._processes.was_given_up(self._name(index)))
        return list(itertools.islice(free, count))

    def _start_one(self, index: int) -> bool:
        try:
            plan = self._plan(self._service, index)
        except (ConfigError, OSError) as error:
            self._give_up(index, str(error))
            return False
        self._start(plan)
        self._notice(f"{plan.name} is started")
        return True

    def _give_up(self, index: int, reason: str) -> None:
        """Lowers the requested number: one too high for this machine must not end the run.

        With others above it, its number is left out instead: they are not drained for it.
        """
        name = self._name(index)
        if any(self._index(other) > index for other in self._processes.staying(self._belongs)):
            self._processes.leave_out(name)
            self._notice(f"{name} cannot be started, the run goes on without it: {reason}")
            return
        below = sum(not self._processes.was_given_up(self._name(lower)) for lower in range(index))
        self._wanted = min(below, self._wanted or 0)
        self._notice(f"{name} cannot be started, there will be no more than {self._wanted}: {reason}")

    def _name(self, index: int) -> str:
        """Name of a replica's process, config, log and pid file."""
        return f"{self._service}-{index}"

    def _index(self, name: str) -> int:
        return int(name.removeprefix(f"{self._service}-"))

    def _belongs(self, name: str) -> bool:
        return name.startswith(f"{self._service}-")
