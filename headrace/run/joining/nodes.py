"""The other machines of a run, as far as `headrace train` is concerned."""

from collections.abc import Mapping
from pathlib import Path

from headrace.config.resolve import Resolved
from headrace.config.tables import SupervisorTable
from headrace.services.trainer.settings import ProcessKeys
from headrace.wire.errors import ConfigError
from headrace.wire.host.interfaces import is_loopback
from headrace.wire.process.environment import ANNOUNCE, announced


def check_nodes(resolved: Resolved) -> None:
    """Raises ConfigError if a trainer of several machines has no rendezvous address."""
    table = resolved.config.trainer
    if table.nodes > 1 and not table.rendezvous:
        raise ConfigError(
            f"{resolved.place('trainer', 'nodes')}: {table.nodes} machines need trainer.rendezvous = 'HOST:PORT': an "
            "address of this machine that the others can reach, and a free port"
        )


def start_notes(run_dir: Path, table: ProcessKeys) -> list[str]:
    """What there is to know and to do at a start, one line each: compiled layers, the other machines."""
    compiled = (
        "trainer.compile: the first step compiles the layers; resumed on a GPU, the run may differ in its last bits"
    )
    return [
        *([compiled] if table.compile is True else []),
        *(
            f"machine {node} of the trainer: start there `headrace join {run_dir} --node {node}`, if no launcher does"
            for node in range(1, table.nodes)
        ),
    ]


def ready_s(supervisor: SupervisorTable, table: ProcessKeys) -> float:
    """Seconds that the trainer's process may take to become ready: its machines may have to wait for each other."""
    return supervisor.ready_s + (table.rendezvous_timeout_s if table.nodes > 1 else 0.0)


def announced_address(environment: Mapping[str, str]) -> str:
    """The address of HEADRACE_ANNOUNCE; empty if it is not set.

    Raises ConfigError for one by which no other machine reaches this one.
    """
    found = announced(environment)
    if found and (":" in found or is_loopback(found)):
        raise ConfigError(
            f"{ANNOUNCE}: {found} is not an address by which other machines reach this one: give its name, or its IPv4 "
            "address without a port"
        )
    return found
