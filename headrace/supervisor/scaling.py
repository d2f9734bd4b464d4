"""How many replicas of a service there are to be, and the way there while the run goes on."""

from collections.abc import Callable

from headrace.supervisor.crew import Crew
from headrace.supervisor.keeper import Notice
from headrace.supervisor.process import ProcessPlan
from wire.errors import ConfigError

MOST = 256
"""Replicas on one machine."""

SERVICES = ("rollout", "reward")
"""Those that have replicas."""

PlanReplica = Callable[[str, int], ProcessPlan]
"""Writes the config of the service's replica with this number; raises ConfigError if there is no port for it."""


def check_count(text: str) -> int:
    """A number of replicas as a person gives it; raises ConfigError for another thing."""
    try:
        count = int(text)
    except ValueError:
        raise ConfigError(f"the number of replicas must be a whole number, not {text!r}") from None
    if not 0 <= count <= MOST:
        raise ConfigError(f"the number of replicas must be 0 to {MOST}, not {count}")
    return count


class Scaling:
    """The wanted number against what runs: `step` does whatever can be done now, as often as it is called."""

    def __init__(
        self,
        service: str,
        crew: Crew,
        plan: PlanReplica,
        start: Callable[[ProcessPlan], None],
        *,
        grace_s: float,
        notice: Notice,
    ) -> None:
        self._service, self._crew, self._plan, self._start = service, crew, plan, start
        self._grace_s, self._notice = grace_s, notice
        self._wanted: int | None = None
        """None until somebody has asked: then the replicas are those the run began with."""

    def ask(self, count: int) -> None:
        """From now on so many."""
        self._wanted = count
        self.step()

    def situation(self) -> str:
        """Why there was nothing to do."""
        running = len(self._crew.staying(self._belongs))
        if self._wanted is None or self._wanted <= running:
            return f"there are {running} replicas already"
        return f"{self._wanted - running} will be started when those before them have drained"

    def step(self) -> None:
        """Starts what is missing, lets the highest ones go; a seat whose last holder still drains waits for the end."""
        if self._wanted is None:
            return
        for name, error in self._crew.take_failed(self._belongs):
            self._give_up(self._index(name), str(error))
        for index in range(self._wanted):
            if self._crew.keeper(self._name(index)) is None and not self._start_one(index):
                return
        for name in self._crew.staying(self._belongs):
            if self._index(name) >= self._wanted:
                self._crew.dismiss(name, self._grace_s)
                self._notice(f"{name} drains")

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
        """A number too high for this machine must not end the run."""
        self._wanted = min(index, self._wanted or 0)
        self._notice(f"{self._name(index)} cannot be started, there will be no more than {self._wanted}: {reason}")

    def _name(self, index: int) -> str:
        """Of its process, config, log and pid file."""
        return f"{self._service}-{index}"

    def _index(self, name: str) -> int:
        return int(name.removeprefix(f"{self._service}-"))

    def _belongs(self, name: str) -> bool:
        return name.startswith(f"{self._service}-")
