"""Joins a further machine to a trainer: writes its settings and keeps its processes alive until the run ends."""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from headrace.config.resolve import Resolved, kept_settings, resolve
from headrace.inspect.output import FAILED, FINISHED, STOPPED, Output
from headrace.inspect.screen import Lines
from headrace.run.joining.nodes import check_nodes, ready_s
from headrace.services.trainer.config.replay import ReplaySettings
from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.settings import TrainerSettings
from headrace.supervisor.alone import OPERATOR_CODE, STOPPED_CODE, Alone
from headrace.supervisor.lock import RunLock, RunWatch
from headrace.supervisor.once import child_environment, python
from headrace.supervisor.ports import pick_ports
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.process_monitor import Budget
from headrace.supervisor.supervisor import RunOutcome
from headrace.wire.errors import ConfigError, WaitTimeoutError
from headrace.wire.process.await_address import problem_at
from headrace.wire.process.await_file import await_end_of
from headrace.wire.process.environment import overlay
from headrace.wire.rundir import atomic
from headrace.wire.rundir.events import last_word
from headrace.wire.rundir.layout import RunPaths

OF_THIS_MACHINE = ("HEADRACE_ANNOUNCE", "HEADRACE_TLS")
_LIVES = 3
"""Early deaths in a row allowed on a joining machine: each may be a wait of `trainer.rendezvous_timeout_s`."""


def join_node(
    run_dir: Path, node: int, rendezvous: str, environment: Mapping[str, str], output: Output, *, steps: bool = True
) -> int:
    """Trains on a further machine until the whole trainer has ended; returns the exit status. Raises ConfigError.

    `rendezvous`: empty = the address in the run's settings. `steps`: print the run's steps, as machine 0 does.
    """
    settings = node_settings(run_dir, node, rendezvous, environment)
    lock = RunLock(run_dir, name=f"join-{node}.lock", what=f"machine {node} of {run_dir}")
    try:
        plan, budget = plan_node(settings, environment)
        status = _run_node(run_dir, plan, budget, output, steps=steps)
        output.in_json({"node": node, "run_dir": str(run_dir), "status": status})
        return status
    finally:
        lock.release()


def join_placed(run_dir: Path, node: int, resolved: Resolved, environment: Mapping[str, str], output: Output) -> int:
    """Joins as `join_node` does once the trainer of machine 0 listens: the settings are those of this start then.

    A stop ends with 0 here: a launcher passes on the highest exit status, and the run's is machine 0's.
    """
    check_nodes(resolved)
    table, watch = resolved.config.trainer, RunWatch(run_dir)
    host, _, port = table.rendezvous.rpartition(":")
    who, seconds = f"machine 0 of {run_dir}", ready_s(resolved.config.supervisor, table)
    try:
        listens = await_end_of(lambda: "" if watch.ended() else problem_at(host, int(port), who), seconds)
    except KeyboardInterrupt:
        return FINISHED
    if not listens:
        keys = "supervisor.ready_s and trainer.rendezvous_timeout_s"
        raise WaitTimeoutError(f"{who} to listen at {table.rendezvous} ({keys}): see its output", seconds)
    if watch.ended():
        output.say(f"{who} has ended before its trainer listened: see its output")
        return FINISHED
    status = join_node(run_dir, node, table.rendezvous, environment, output, steps=False)
    return FINISHED if status == STOPPED else status


def node_settings(
    run_dir: Path, node: int, rendezvous: str, environment: Mapping[str, str]
) -> TrainerSettings | StageSettings:
    """Settings of machine 0, with this machine's number, ports and addresses. Raises ConfigError."""
    try:
        values = kept_settings(run_dir, "trainer")
    except ConfigError as error:
        raise ConfigError(f"{error}; begin with `headrace train` on machine 0, in this run directory") from None
    grpc_port, http_port = pick_ports(2)
    # The address at which others reach machine 0 is not this machine's.
    values |= {"node": node, "run_dir": str(run_dir), "grpc_port": grpc_port, "http_port": http_port, "announce": ""}
    values |= {"grpc_socket": None}
    values = overlay(values, {name: environment.get(name, "") for name in OF_THIS_MACHINE})
    if rendezvous:
        values["trainer"]["rendezvous"] = rendezvous
    settings = _kind(values).model_validate(values)
    table = settings.trainer
    if not 0 < node < table.nodes:
        raise ConfigError(
            f"--node {node}: the trainer has {table.nodes} machines; joining machines are numbered from 1"
        )
    if not table.rendezvous:
        raise ConfigError("give --rendezvous HOST:PORT, where machine 0 meets the others")
    return settings


def plan_node(settings: TrainerSettings | StageSettings, environment: Mapping[str, str]) -> tuple[ProcessPlan, Budget]:
    """Writes the settings beside those of machine 0; returns the plan and the restart budget of this machine's part."""
    node, table = settings.node, settings.trainer
    config = resolve(RunPaths(settings.run_dir).run_toml).config
    path = RunPaths(settings.run_dir).settings(f"trainer-node-{node}")
    atomic.write_text(path, settings.model_dump_json(indent=2, serialize_as_any=True) + "\n", durable=False, mode=0o600)
    words: tuple[str, ...] = ()
    if isinstance(settings, ReplaySettings):
        words = ("--replay",)
    elif settings.run.stage != "rl":
        words = ("--stage", settings.run.stage)
    codes = ("--stopped-code", str(STOPPED_CODE), "--operator-code", str(OPERATOR_CODE))
    env = child_environment(dict(environment), threads=settings.run.threads, device=settings.run.device)
    plan = ProcessPlan(
        name=f"trainer-node-{node}",
        argv=python("headrace.services.trainer", *words, *codes, "--config", str(path)),
        env=env,
        grpc_port=settings.grpc_port,
        http_port=settings.http_port,
    )
    return plan, Budget(
        ready_s=ready_s(config.supervisor, table),
        early_deaths=_LIVES,
        early_deaths_later=_LIVES,
        liveness_s=config.supervisor.liveness_s,
    )


def end_of_run(watch: RunWatch, run_dir: Path) -> RunOutcome | None:
    """How the run ended, once its command on machine 0 has; None before."""
    if not watch.ended():
        return None
    # A stage has no orchestrator, and its end reaches the other machines as an exit status alone.
    if RunPaths(run_dir).event_files("orchestrator") and last_word(run_dir) == "run_ended":
        return RunOutcome("finished")
    return RunOutcome("stopped", "the run's command on machine 0 has ended")


def _kind(values: dict[str, Any]) -> type[TrainerSettings | StageSettings]:
    if "replay" in values:
        return ReplaySettings
    return TrainerSettings if values["run"]["stage"] == "rl" else StageSettings


def _run_node(run_dir: Path, plan: ProcessPlan, budget: Budget, output: Output, *, steps: bool) -> int:
    screen = Lines(run_dir, output.say, steps=steps)
    try:
        alone = Alone(run_dir, plan, budget=budget, called_off=partial(end_of_run, RunWatch(run_dir), run_dir))
        outcome = asyncio.run(alone.run(screen.show))
    finally:
        screen.close()
    if outcome.state == "failed":
        output.say(f"failed: {outcome.reason}")
        return FAILED
    output.say(f"{plan.name} {outcome.state}" + (f": {outcome.reason}" if outcome.reason else ""))
    return FINISHED if outcome.state == "finished" else STOPPED
