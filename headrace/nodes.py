"""What `headrace train` needs to know of the other machines of a trainer."""

from pathlib import Path

from headrace.config.resolve import Resolved
from headrace.config.schema import SupervisorTable
from services.trainer.settings import TrainerTable
from wire.errors import ConfigError


def check_nodes(resolved: Resolved) -> None:
    """Raises ConfigError if the trainer's other machines would not know where to meet."""
    table = resolved.config.trainer
    if table.nodes > 1 and not table.rendezvous:
        raise ConfigError(
            f"{resolved.place('trainer', 'nodes')}: {table.nodes} machines need trainer.rendezvous = 'HOST:PORT': an "
            "address of this machine that the others reach, and a free port of it"
        )


def how_to_join(run_dir: Path, table: TrainerTable) -> list[str]:
    """Lines that tell what to start on the other machines; none if there are none."""
    return [
        f"machine {node} of the trainer: start there `headrace join {run_dir} --node {node}`"
        for node in range(1, table.nodes)
    ]


def ready_s(supervisor: SupervisorTable, table: TrainerTable) -> float:
    """How long the trainer's process may take until it is ready: its machines may have to wait for each other."""
    return supervisor.ready_s + (table.rendezvous_timeout_s if table.nodes > 1 else 0.0)
