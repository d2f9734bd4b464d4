"""One more machine of a trainer: its settings, and its processes kept alive until the run ends."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.config.resolve import resolve
from headrace.execute import FAILED, FINISHED, STOPPED, Output
from headrace.nodes import ready_s
from headrace.screen import Lines
from headrace.supervisor.alone import Alone
from headrace.supervisor.keeper import Budget
from headrace.supervisor.once import child_environment, python
from headrace.supervisor.ports import pick_ports
from headrace.supervisor.process import ProcessPlan
from services.trainer.settings import TrainerSettings
from services.trainer.stage_settings import StageSettings
from services.trainer.stages.replay_settings import ReplaySettings
from wire.errors import ConfigError


def plan_node(run_dir: Path, node: int, rendezvous: str, environment: Mapping[str, str]) -> tuple[ProcessPlan, Budget]:
    """Writes the settings of one more machine beside those of machine 0. Raises ConfigError.

    `rendezvous`: empty = as the run's settings say.
    """
    file = run_dir / "config" / "trainer.json"
    try:
        values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: {error}; begin with `headrace train` on machine 0, in this run directory") from None
    config = resolve(run_dir / "config" / "run.toml").config
    grpc_port, http_port = pick_ports(2)
    values |= {"node": node, "run_dir": str(run_dir), "grpc_port": grpc_port, "http_port": http_port}
    if rendezvous:
        values["trainer"]["rendezvous"] = rendezvous
    kind, words = _kind(values)
    settings = kind.model_validate(values)
    table = settings.trainer
    if not 0 < node < table.nodes:
        raise ConfigError(f"--node {node}: the trainer has {table.nodes} machines; those that join are 1 and up")
    if not table.rendezvous:
        raise ConfigError("give --rendezvous HOST:PORT, where machine 0 meets the others")
    path = run_dir / "config" / f"trainer-node-{node}.json"
    path.write_text(settings.model_dump_json(indent=2, serialize_as_any=True) + "\n", encoding="utf-8")
    env = child_environment(dict(environment), threads=settings.run.threads, device=settings.run.device)
    plan = ProcessPlan(
        name=f"trainer-node-{node}",
        argv=python("services.trainer", *words, "--config", str(path)),
        env=env,
        grpc_port=grpc_port,
        http_port=http_port,
    )
    return plan, Budget(ready_s=ready_s(config.supervisor, table), liveness_s=config.supervisor.liveness_s)


def _kind(values: dict[str, Any]) -> tuple[type[TrainerSettings | StageSettings], tuple[str, ...]]:
    """Of the settings file, and how the trainer is started with it."""
    if "replay" in values:
        return ReplaySettings, ("--replay",)
    stage = values["run"]["stage"]
    return (TrainerSettings, ()) if stage == "rl" else (StageSettings, ("--stage", stage))


def run_node(run_dir: Path, plan: ProcessPlan, budget: Budget, output: Output) -> int:
    """Keeps the machine's part of the trainer alive until the whole trainer has ended; returns the exit status."""
    screen = Lines(run_dir, output.say)
    try:
        outcome = asyncio.run(Alone(run_dir, plan, budget=budget).run(screen.show))
    finally:
        screen.close()
    if outcome.state == "failed":
        output.say(f"failed: {outcome.reason}")
        return FAILED
    output.say(f"{plan.name} {outcome.state}")
    return FINISHED if outcome.state == "finished" else STOPPED
