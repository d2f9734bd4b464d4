"""`headrace join`: its command line."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, reported_errors
from headrace.run.joining.replicas import MachineShare, join_services
from headrace.run.joining.trainer_node import join_node
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited


def join(
    run_dir: Annotated[Path, typer.Argument(help="The run directory, on a shared file system.", show_default=False)],
    rollout: Annotated[bool, typer.Option("--rollout", help="Run rollout replicas here.")] = False,
    reward: Annotated[bool, typer.Option("--reward", help="Run reward replicas here.")] = False,
    environment: Annotated[bool, typer.Option("--environment", help="Run environment replicas here.")] = False,
    gpus: Annotated[
        str, typer.Option("--gpus", metavar="FIRST-LAST", help="GPUs of the SGLang servers. Default: all.")
    ] = "",
    replicas: Annotated[
        int, typer.Option("--replicas", min=0, help="Of each service. Default: as the GPUs hold, or one.")
    ] = 0,
    node: Annotated[
        int | None, typer.Option("--node", help="Train here instead: the machine's number, from 1.", show_default=False)
    ] = None,
    rendezvous: Annotated[
        str,
        typer.Option("--rendezvous", metavar="HOST:PORT", help="With --node. Default: the run's trainer.rendezvous."),
    ] = "",
    json: Json = False,
) -> None:
    asked = {"rollout": rollout, "reward": reward, "environment": environment}
    services = tuple(service for service, wanted in asked.items() if wanted)
    with reported_errors(json=json, stopped="stopped") as output:
        if (node is None) is not bool(services):
            raise ConfigError("give either --rollout, --reward, --environment or several of them, or --node")
        if node is not None:
            raise typer.Exit(join_node(run_dir.resolve(), node, rendezvous, inherited(), output))
        share = MachineShare(services=services, replicas=replicas, gpus=MachineShare.gpus_of(gpus))
        raise typer.Exit(join_services(run_dir.resolve(), share, inherited(), output))
