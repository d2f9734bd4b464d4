"""Operator actions on a live run. Each is idempotent, durable before it is answered, and in the event log."""

import json
import time
from pathlib import Path

from headrace.services.orchestrator.state.registry import Registry
from headrace.services.orchestrator.state.run_state import RunPhase, RunState
from headrace.wire.api.status import OperatorStatus
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.peers.control import ask
from headrace.wire.rundir.events import EventLog
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.telemetry.logs import get_logger

log = get_logger("orchestrator.operator")
_SCALE_S = 15.0
_OVER = (RunPhase.FINISHED, RunPhase.FAILED, RunPhase.STOPPED)
_BY_HAND = (
    "nothing on this machine starts replicas of this run: with Compose use `docker compose up -d --no-recreate "
    "--scale {service}={count}`, with Kubernetes `kubectl scale deployment/{service} --replicas={count}`"
)

_HEARD = (
    "the stop is withdrawn, but the trainer may have received it: then it ends its step and exits; continue with "
    "`headrace train --resume`"
)


class Operator:
    """All operator actions; `who` is free text for the log. Raises ConfigError with the reason if one is impossible."""

    def __init__(self, state: RunState, registry: Registry, events: EventLog, run_dir: Path) -> None:
        self._state = state
        self._registry = registry
        self._events = events
        self._run_dir = run_dir

    def view(self) -> OperatorStatus:
        """The operator requests in force."""
        operator_requests = self._state.operator_requests
        return OperatorStatus(
            paused=operator_requests.paused,
            stopping=operator_requests.stopping,
            checkpoint_asked=bool(operator_requests.checkpoint),
            draining=tuple(sorted(operator_requests.drained)),
        )

    async def pause(self, who: str) -> str:
        """Stops issuing prompts; open groups are still trained."""
        self._check_live()
        self._state.operator_requests.pause(True)
        return await self._done("pause", who, "paused: no new prompt is issued; prompts in flight are finished")

    async def resume(self, who: str) -> str:
        """Resumes issuing prompts; withdraws a stop that is not done yet."""
        self._check_live()
        operator_requests = self._state.operator_requests
        said = "resumed: prompts are issued as credit allows"
        if operator_requests.stopping:
            # A trainer that knows of the stop exits; one started in its place does not have to.
            heard = self._state.trainer.knows_stop or operator_requests.is_inherited
            said = _HEARD if heard else "the stop is withdrawn before the trainer received it; prompts are issued"
        self._state.go_on()
        return await self._done("resume", who, said)

    async def checkpoint(self, who: str) -> str:
        """Requests a checkpoint after the current step."""
        self._check_live()
        if not self._state.version:
            raise ConfigError("there is nothing to keep yet: the first step is not done")
        self._state.operator_requests.ask_checkpoint()
        return await self._done("checkpoint", who, "the trainer writes a checkpoint after the step it is in")

    async def stop(self, who: str) -> str:
        """Requests that the trainer finish its step, write a checkpoint and exit; the run can be resumed."""
        self._check_live()
        self._state.operator_requests.stop(True)
        return await self._done("stop", who, "stopping: the trainer ends its step and writes a checkpoint")

    async def scale(self, service: str, count: int, who: str) -> str:
        """Changes the number of replicas, if a supervisor on this machine starts them."""
        self._check_live()
        socket = self._control(service, count)
        request = {"verb": "scale", "service": service, "count": count}
        try:
            said = await ask(socket, request, _SCALE_S)
        except TransientError:
            raise ConfigError(_BY_HAND.format(service=service, count=count)) from None
        return await self._done(f"scale {service} {count}", who, "; ".join(said))

    async def drain(self, replica_id: str, on: bool, who: str) -> str:
        """Starts or ends the drain of a replica: it takes no prompts, but finishes its groups and gets new weights."""
        known = {replica.replica_id: replica.boot_id for replica in self._registry.alive(time.monotonic())}
        if replica_id not in known and (on or replica_id not in self._state.operator_requests.drained):
            raise ConfigError(f"there is no replica {replica_id!r}; there are {', '.join(known) or 'none'}")
        self._state.operator_requests.drain(replica_id, on, known.get(replica_id, ""))
        if on:
            return await self._done(f"drain {replica_id}", who, f"{replica_id} takes no more prompts")
        return await self._done(f"undrain {replica_id}", who, f"{replica_id} takes prompts again")

    def _check_live(self) -> None:
        if self._state.phase in _OVER:
            raise ConfigError(f"the run is {self._state.phase}: continue it with `headrace train --resume`")

    def _control(self, service: str, count: int) -> Path:
        """The control socket of the supervisor that started this process; raises ConfigError if there is none."""
        try:
            record = json.loads(RunPaths(self._run_dir).supervisor.read_text(encoding="utf-8"))
            return Path(record["control"])
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(_BY_HAND.format(service=service, count=count)) from None

    async def _done(self, action: str, who: str, said: str) -> str:
        self._events.append("operator_action", action=action, who=who, said=said, version=self._state.version)
        log.info("operator_action", action=action, who=who)
        await self._state.notify()
        return said
