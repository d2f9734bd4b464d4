"""Reads from a launcher's environment which machine of a trainer this is (ADR 16).

A launcher is recognized by one variable. One that has started a single task says nothing.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.wire.errors import ConfigError

PORT = 29500
"""Of the rendezvous, where the launcher names only a host; torchrun's own default."""
_JOB_PORTS = 1000


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """Machine `node` of `nodes`; None: its launcher does not count them."""

    node: int
    nodes: int | None
    rendezvous: str
    """`host:port` of machine 0; empty: not said."""
    origin: str
    """The variable that gives `node`."""

    def check(self, nodes: int) -> None:
        """Raises ConfigError if a trainer of `nodes` machines has no such machine."""
        if self.nodes not in (None, nodes):
            raise ConfigError(f"trainer.nodes = {nodes}, but {self._said}: make them equal")
        if self.node >= nodes:
            raise ConfigError(
                f"{self.origin} = {self.node}: trainer.nodes is {nodes}, so the last machine is {nodes - 1}"
            )

    @property
    def _said(self) -> str:
        return f"{self.origin} makes this machine {self.node}" + (f" of {self.nodes}" if self.nodes else "")

    def contradicts(self, other: "NodePlacement") -> str:
        """What two launchers say differently, in words; empty if they agree."""
        counts = {self.nodes, other.nodes} - {None}
        if self.node == other.node and len(counts) < 2:
            return ""
        return f"{self._said}, but {other._said}: unset the variables of one launcher"


def node_placement(environment: Mapping[str, str]) -> NodePlacement | None:
    """The place of this machine; None: the environment names none. HEADRACE_RENDEZVOUS overrides a launcher's address.

    Raises ConfigError, naming the variable, where launchers contradict each other or start several tasks a machine.
    """
    given = environment.get("HEADRACE_RENDEZVOUS", "")
    places = [read(environment) for name, read in _LAUNCHERS.items() if environment.get(name)]
    found = [one for one in places if one is not None]
    if not found:
        return NodePlacement(0, None, given, "HEADRACE_RENDEZVOUS") if given else None
    for one in found:
        for other in found:
            if why := one.contradicts(other):
                raise ConfigError(why)
    nodes = next((one.nodes for one in found if one.nodes), None)
    address = given or next((one.rendezvous for one in found if one.rendezvous), "")
    return NodePlacement(found[0].node, nodes, address, found[0].origin)


def _own(environment: Mapping[str, str]) -> NodePlacement:
    return NodePlacement(_number(environment, "HEADRACE_NODE"), None, "", "HEADRACE_NODE")


def _slurm(environment: Mapping[str, str]) -> NodePlacement | None:
    """A step of `srun`. A batch script is none: it runs on one machine, whatever the job has."""
    tasks, nodes = _number(environment, "SLURM_STEP_NUM_TASKS"), _number(environment, "SLURM_STEP_NUM_NODES")
    if tasks != nodes:
        raise ConfigError(
            f"SLURM_STEP_NUM_TASKS = {tasks} on SLURM_STEP_NUM_NODES = {nodes}: Headrace starts the ranks of a machine "
            "itself (trainer.ranks); use `srun --ntasks-per-node=1 headrace train RUN.toml`"
        )
    # n[01-03,7]-ib,m1 begins with n01-ib.
    listed = re.match(r"(\[[^]]*\]|[^,[])*", _text(environment, "SLURM_STEP_NODELIST"))
    host = re.sub(r"\[([^],-]+)[^]]*\]", r"\1", listed[0] if listed else "")
    # Two jobs may share a machine.
    port = PORT + _number(environment, "SLURM_JOB_ID") % _JOB_PORTS
    return _of_several(_number(environment, "SLURM_NODEID"), nodes, host, port, "SLURM_NODEID")


def _skypilot(environment: Mapping[str, str]) -> NodePlacement | None:
    host = _text(environment, "SKYPILOT_NODE_IPS").split()[0]
    nodes = _number(environment, "SKYPILOT_NUM_NODES")
    return _of_several(_number(environment, "SKYPILOT_NODE_RANK"), nodes, host, PORT, "SKYPILOT_NODE_RANK")


def _torch(environment: Mapping[str, str]) -> NodePlacement | None:
    """The variables of `torch.distributed`, from torchrun or from a cluster."""
    local, nodes = _number(environment, "LOCAL_WORLD_SIZE", "1"), _number(environment, "WORLD_SIZE")
    if local > 1:
        raise ConfigError(
            f"LOCAL_WORLD_SIZE = {local}: Headrace starts the ranks of a machine itself (trainer.ranks); use "
            "`headrace train RUN.toml`, or on several machines `torchrun --nproc-per-node 1 -m headrace train RUN.toml`"
        )
    if nodes == 1:
        return None
    # The agent of torchrun listens at MASTER_PORT itself.
    port = _number(environment, "MASTER_PORT", str(PORT)) + ("TORCHELASTIC_RUN_ID" in environment)
    return _of_several(_number(environment, "RANK"), nodes, _text(environment, "MASTER_ADDR"), port, "RANK")


def _kubeflow(environment: Mapping[str, str]) -> NodePlacement | None:
    """What a TrainJob sets for torchrun, of which it need not be the command."""
    host, port = _text(environment, "PET_MASTER_ADDR"), _number(environment, "PET_MASTER_PORT", str(PORT))
    nodes = _number(environment, "PET_NNODES")
    return _of_several(_number(environment, "PET_NODE_RANK"), nodes, host, port, "PET_NODE_RANK")


def _indexed_job(environment: Mapping[str, str]) -> NodePlacement | None:
    """A pod of an indexed Job, such as a JobSet's; without an address the index is one of a sweep's."""
    name = "JOB_COMPLETION_INDEX"
    return NodePlacement(_number(environment, name), None, "", name) if environment.get("HEADRACE_RENDEZVOUS") else None


_LAUNCHERS: Mapping[str, Callable[[Mapping[str, str]], NodePlacement | None]] = {
    "HEADRACE_NODE": _own,
    "SLURM_STEP_NODELIST": _slurm,
    "SKYPILOT_NODE_RANK": _skypilot,
    "WORLD_SIZE": _torch,
    "PET_NODE_RANK": _kubeflow,
    "JOB_COMPLETION_INDEX": _indexed_job,
}
NAMES = frozenset(_LAUNCHERS)
"""Variables without which a process sees no launcher."""


def _of_several(node: int, nodes: int, host: str, port: int, origin: str) -> NodePlacement | None:
    return NodePlacement(node, nodes, f"{host}:{port}", origin) if nodes > 1 else None


def _text(environment: Mapping[str, str], name: str) -> str:
    if not (value := environment.get(name, "").strip()):
        raise ConfigError(f"{name} is not set, but other variables of its launcher are: set it, or unset those")
    return value


def _number(environment: Mapping[str, str], name: str, default: str = "") -> int:
    value = environment.get(name) or default or _text(environment, name)
    if not value.isdecimal():
        raise ConfigError(f"{name} = {value!r}: give a whole number")
    return int(value)
