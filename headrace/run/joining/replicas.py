"""Joins a further machine to a run with replicas of its services, and keeps them alive until the run ends."""

import asyncio
import copy
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from headrace.config.resolve import kept_settings, resolve
from headrace.config.services import SETTINGS
from headrace.doctor.placement import visible
from headrace.inspect.output import Output
from headrace.inspect.screen import Lines
from headrace.run.execute import exit_status, longest_start_s
from headrace.run.joining.nodes import announced_address
from headrace.run.joining.trainer_node import OF_THIS_MACHINE, end_of_run
from headrace.supervisor.alone import Alone
from headrace.supervisor.lock import RunLock, RunWatch
from headrace.supervisor.once import child_environment, python
from headrace.supervisor.ports import pick_ports
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.process_monitor import Budget
from headrace.supervisor.scaling import SERVICES
from headrace.supervisor.supervisor import EndDeadlines, RunOutcome
from headrace.wire.errors import ConfigError
from headrace.wire.host.interfaces import address_towards, is_loopback
from headrace.wire.peers.urls import without_credentials
from headrace.wire.process.await_address import problem_at
from headrace.wire.process.await_file import await_end_of
from headrace.wire.process.environment import ANNOUNCE, overlay
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths

_OWN = ("grpc_port", "grpc_socket", "http_port")
_LOOK_S = 5.0
_Settings: TypeAlias = dict[str, dict[str, Any] | None]
_AGAIN = "started again"
"""State of an outcome: the run's command was, with other settings for the services."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineShare:
    """What this machine gives to the run."""

    services: tuple[str, ...]
    replicas: int = 0
    """Replicas of each service; 0 = as many SGLang servers as the GPUs hold, and one of any other."""
    gpus: range | None = None
    """Indices among the visible ones; None = all."""

    @classmethod
    def gpus_of(cls, text: str) -> range | None:
        """Parses `0-3` or `2`; None for an empty text. Raises ConfigError."""
        first, dash, last = text.partition("-")
        if not text:
            return None
        if not (first.isdecimal() and (last.isdecimal() if dash else True)) or int(last or first) < int(first):
            raise ConfigError(f"--gpus {text!r}: give the first and the last index, such as 0-3")
        return range(int(first), int(last or first) + 1)


def join_services(run_dir: Path, share: MachineShare, environment: Mapping[str, str], output: Output) -> int:
    """Runs replicas on this machine until the run ends; returns the exit status. Raises ConfigError.

    When the run's command is started again, they are started again with its settings. HEADRACE_INSTANCE, or the host's
    name, is in their names.
    """
    if share.gpus is not None and "rollout" not in share.services:
        raise ConfigError("--gpus is for --rollout")
    name = str(overlay({}, {"HEADRACE_INSTANCE": environment.get("HEADRACE_INSTANCE") or "hostname"})["instance"])
    _await_start(run_dir)
    with ExitStack() as held:
        for service in share.services:
            what = f"{run_dir}: its {service} replicas of {name}"
            held.callback(RunLock(run_dir, name=f"join-{service}-{name}.lock", what=what).release)
        outcome = RunOutcome(_AGAIN)
        while outcome.state == _AGAIN:
            _await_start(run_dir)
            joined = Joined(run_dir, name, environment)
            plans = joined.plans(share)
            output.say(f"{', '.join(plan.name for plan in plans)} join {run_dir} at {joined.orchestrator}")
            outcome = asyncio.run(joined.keep(plans, output.say))
            output.say(f"{name} {outcome.state}" + (f": {outcome.reason}" if outcome.reason else ""))
    output.in_json({"machine": name, "run_dir": str(run_dir), "state": outcome.state})
    return exit_status(outcome)


class Joined:
    """The replicas of one machine, for one start of the run's command."""

    def __init__(self, run_dir: Path, name: str, environment: Mapping[str, str]) -> None:
        """Raises ConfigError where the run does not listen for other machines."""
        self._run_dir, self._name, self._environment = run_dir, name, environment
        self._base = _read_all(run_dir)
        rollout = kept_settings(run_dir, "rollout-0")
        self.orchestrator = str(rollout["orchestrator_address"])
        self._config = resolve(RunPaths(run_dir).run_toml).config
        _check_reachable(run_dir, self.orchestrator, str(rollout["broker"]["url"]))

    def plans(self, share: MachineShare) -> list[ProcessPlan]:
        """Writes the settings of the replicas and plans them. Raises ConfigError."""
        found = []
        for service in share.services:
            gpus = self._gpus(share) if service == "rollout" else None
            each = self._config.rollout.sglang.tp
            count = share.replicas or (len(gpus) // each if gpus else 1)
            if gpus is not None and not 0 < count * each <= len(gpus):
                raise ConfigError(f"{count} replicas of rollout.sglang.tp = {each} do not fit {len(gpus)} GPUs")
            first = [gpus.start + number * each for number in range(count)] if gpus else [0] * count
            found += [self._plan(service, number, gpu) for number, gpu in enumerate(first)]
        return found

    def _gpus(self, share: MachineShare) -> range | None:
        """Those for SGLang servers; None if no server is launched on one."""
        rollout = self._config.rollout
        if rollout.gpu_sharing == "turns" or rollout.sglang.urls:
            key = 'gpu_sharing = "turns"' if rollout.gpu_sharing == "turns" else "sglang.urls"
            raise ConfigError(f"rollout.{key}: its replicas are those of the first machine")
        if not self._config.serves_on_cuda:
            if share.gpus is not None:
                raise ConfigError("--gpus: this run launches no SGLang server on a GPU")
            return None
        there = visible(self._environment)
        gpus = range(there) if share.gpus is None else share.gpus
        if gpus.stop > there:
            raise ConfigError(f"--gpus: GPU {gpus.stop - 1} is asked for, and this machine has {there}")
        return gpus

    def _plan(self, service: str, number: int, gpu: int) -> ProcessPlan:
        base = self._base[service]
        if base is None:
            raise ConfigError(f"--{service}: the run in {self._run_dir} has no such service")
        instance = f"{self._name}-{number}"
        grpc_port, http_port = pick_ports(2)
        values = copy.deepcopy(base) | {"run_dir": str(self._run_dir), "announce": self._address()}
        values |= {"grpc_port": grpc_port, "grpc_socket": None, "http_port": http_port}
        values = overlay(values, {key: self._environment.get(key, "") for key in OF_THIS_MACHINE if key != ANNOUNCE})
        values = overlay(values, {"HEADRACE_INSTANCE": instance})
        if service == "rollout":
            values["rollout"]["sglang"]["base_gpu_id"] = gpu
        settings = SETTINGS[service].model_validate(values)
        if not settings.model.path.exists():
            raise ConfigError(f"{settings.model.path}, the run's model, is not on this machine: share its disk")
        plan = f"{service}-{instance}"
        path = RunPaths(self._run_dir).settings(plan)
        text = settings.model_dump_json(indent=2, serialize_as_any=True) + "\n"
        atomic.write_text(path, text, durable=False, mode=0o600)
        return ProcessPlan(
            name=plan,
            argv=python(f"headrace.services.{service}", "--config", str(path)),
            env=child_environment(dict(self._environment), threads=settings.run.threads, device=settings.run.device),
            grpc_port=grpc_port,
            http_port=http_port,
        )

    def _address(self) -> str:
        host = self.orchestrator.rpartition(":")[0]
        try:
            # gRPC listens on addresses of IPv4.
            return announced_address(self._environment) or address_towards(socket.gethostbyname(host))
        except OSError as error:
            raise ConfigError(f"there is no way to {host}, the first machine: {error}") from None

    async def keep(self, plans: Sequence[ProcessPlan], say: Callable[[str], None]) -> RunOutcome:
        """Keeps the replicas alive until the run ends or is started again, or this machine is to stop."""
        seconds = longest_start_s(self._config)
        alone = Alone(
            self._run_dir,
            *plans,
            serves=True,
            budget=Budget(ready_s=seconds, liveness_s=self._config.supervisor.liveness_s),
            patience=EndDeadlines(drain_s=EndDeadlines().grace_s),
            called_off=_End(self._run_dir, self.orchestrator, self._base, seconds),
        )
        started = f"{', '.join(plan.name for plan in plans)}: at work"
        return await alone.run(Lines(self._run_dir, say, started=started, steps=False).show)


class _End:
    """Looks whether the run's command has ended, was started again, or is gone."""

    def __init__(self, run_dir: Path, orchestrator: str, settings: "_Settings", seconds: float) -> None:
        self._run_dir, self._settings, self._seconds = run_dir, settings, seconds
        self._host, _, port = orchestrator.rpartition(":")
        self._port, self._watch = int(port), RunWatch(run_dir)
        self._answered = time.monotonic()

    def __call__(self) -> RunOutcome | None:
        if outcome := end_of_run(self._watch, self._run_dir):
            return outcome
        # Between two writes of a start there is none for a moment.
        if any(now not in (None, self._settings[service]) for service, now in _read_all(self._run_dir).items()):
            return RunOutcome(_AGAIN, "the run's command was started again")
        if time.monotonic() - self._answered < _LOOK_S:
            return None
        problem = problem_at(self._host, self._port, "the run's orchestrator")
        if not problem:
            self._answered = time.monotonic()
        elif time.monotonic() - self._answered > self._seconds:
            return RunOutcome("failed", f"{problem} for {self._seconds:g} s: continue the run with --resume, then join")
        return None


def _await_start(run_dir: Path) -> None:
    """Returns once the orchestrator listens: the settings of all services are written then. Raises ConfigError.

    A launcher may start this before the first machine has prepared the run.
    """

    def problem() -> str:
        try:
            orchestrator = str(kept_settings(run_dir, "rollout-0")["orchestrator_address"])
        except ConfigError:
            return f"`headrace train` has not written {RunPaths(run_dir).settings('rollout-0')}"
        host, _, port = orchestrator.rpartition(":")
        is_elsewhere = not orchestrator.startswith("unix:") and not is_loopback(host)
        return problem_at(host, int(port), "the run's orchestrator") if is_elsewhere else ""

    if not await_end_of(problem, Budget().ready_s):
        raise ConfigError(f"{run_dir} has no live services: begin with `headrace train` on the first machine")


def _read_all(run_dir: Path) -> _Settings:
    """Service -> settings of its first replica, without its own ports; None if the run has none."""
    found: _Settings = {}
    for service in SERVICES:
        try:
            kept = kept_settings(run_dir, f"{service}-0")
        except ConfigError:
            found[service] = None
        else:
            found[service] = {key: value for key, value in kept.items() if key not in _OWN}
    return found


def _check_reachable(run_dir: Path, orchestrator: str, broker: str) -> None:
    """Raises ConfigError if the run listens on its own machine alone."""
    found = urlsplit(broker)
    if orchestrator.startswith("unix:") or is_loopback(orchestrator.rpartition(":")[0]):
        raise ConfigError(
            f"{run_dir} listens on its own machine alone: start it there with "
            f"`{ANNOUNCE}=ADDRESS headrace train --resume --run-dir {run_dir}`, an address that this machine reaches"
        )
    if found.scheme == "unix" or is_loopback(found.hostname or "localhost"):
        raise ConfigError(
            f"broker.url = {without_credentials(broker)!r} is on the run's own machine: leave it empty, or give the "
            "server's address"
        )
