"""Each process's own settings, cut out of the whole config."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from headrace.config.schema import RunFile
from headrace.config.tables import Ports
from headrace.services.environment.settings import EnvironmentSettings
from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.services.reward.settings import RewardSettings
from headrace.services.rollout.settings import RolloutSettings
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.config.settings import ModelTable, ServiceSettings
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths

_LAST_PORT = 65535
SETTINGS: Mapping[str, type[ServiceSettings]] = {
    "environment": EnvironmentSettings,
    "orchestrator": OrchestratorSettings,
    "reward": RewardSettings,
    "rollout": RolloutSettings,
    "trainer": TrainerSettings,
}
"""Service -> the class of its settings."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process of the run."""

    service: str
    instance: str
    name: str
    """Name of its config, log and pid file: `trainer`, `rollout-1`."""

    def key(self, port: str) -> tuple[str, str]:
        """The key that fixes one of its ports."""
        return self.service, port


LONGEST_SOCKET = "environment-9999.sock"
"""No process's socket has a longer name."""


@dataclass(frozen=True, slots=True)
class MachineLayout:
    """Directory, addresses, ports and GPUs of this run on this machine."""

    run_dir: Path
    broker_url: str
    ports: Mapping[str, Ports]
    """Process name -> its ports; one for gRPC is 0 where it has a socket."""
    stop_token_ids: Sequence[int]
    host: str = "127.0.0.1"
    """Address that the services listen on."""
    announce: str = ""
    """Address that other machines reach this one by; empty = `host`."""
    orchestrator: str = ""
    """host:port of its gRPC server; empty = on this machine, at its socket or the port in `ports`."""
    first_gpu: int = 0
    """Value of `rollout.sglang.base_gpu_id = "auto"`: 0 in a container, which sees only its own GPUs."""
    gpus: int | None = None
    """How many this machine has; None = no process is placed on one."""
    environment_digest: str = ""
    """Digest of the environment that the run's tasks name; empty = nothing is played."""
    tls: Path | None = None
    """Folder with the certificates of all roles; None = gRPC is not encrypted, or each container has its own."""
    sockets: Path | None = None
    """Folder of the sockets that gRPC is served at by processes without a port for it; None = each has one."""

    def socket_of(self, name: str, ports: Ports) -> Path | None:
        """The socket of a process with these ports; None where it has one for gRPC."""
        return self.sockets / f"{name}.sock" if self.sockets and not ports.grpc_port else None

    def orchestrator_address(self) -> str:
        """Where the services of this machine find the orchestrator's gRPC server."""
        if self.orchestrator:
            return self.orchestrator
        ports = self.ports["orchestrator"]
        socket = self.socket_of("orchestrator", ports)
        return f"unix:{socket}" if socket else f"{self.announce or self.host}:{ports.grpc_port}"


def specs(config: RunFile) -> list[ProcessSpec]:
    """All processes of the run except the broker."""
    return [
        ProcessSpec("orchestrator", "0", "orchestrator"),
        ProcessSpec("trainer", "0", "trainer"),
        *(replica_spec("rollout", index) for index in range(config.rollout.replicas)),
        *(replica_spec("reward", index) for index in range(config.reward.replicas)),
        *(replica_spec("environment", index) for index in range(_players(config))),
    ]


def _players(config: RunFile) -> int:
    return config.environment.replicas if config.environment.on else 0


def replica_spec(service: str, index: int) -> ProcessSpec:
    """The process of one replica of a service that has several."""
    return ProcessSpec(service, str(index), f"{service}-{index}")


def wanted_ports(config: RunFile, spec: ProcessSpec) -> Ports:
    """The ports that the config fixes for the process; 0 where it does not."""
    section: Ports = getattr(config, spec.service)
    step = int(spec.instance)
    for name in Ports.model_fields:
        if getattr(section, name) + step > _LAST_PORT:
            raise ConfigError(
                f"[{spec.service}] {name}: {spec.name} would get port {getattr(section, name) + step}, "
                f"the last one is {_LAST_PORT}; choose a lower one"
            )
    return Ports(
        grpc_port=section.grpc_port + step if section.grpc_port else 0,
        http_port=section.http_port + step if section.http_port else 0,
    )


def settings_of(config: RunFile, spec: ProcessSpec, place: MachineLayout, ports: Ports) -> ServiceSettings:
    """The resolved settings of one process."""
    cls = SETTINGS[spec.service]
    own = {name: getattr(config, name) for name in cls.model_fields if name in RunFile.model_fields}
    own = {name: _without_ports(table) if isinstance(table, BaseModel) else table for name, table in own.items()}
    own["model"] = {key: value for key, value in own["model"].items() if key in ModelTable.model_fields}
    if spec.service == "rollout" and config.model.lora.quantize != "none":
        own["model"]["path"] = RunPaths(place.run_dir).base
    if spec.service == "rollout" and config.rollout.sglang.base_gpu_id == "auto":
        own["rollout"]["sglang"]["base_gpu_id"] = place.first_gpu
    found = {
        "sampling": _plain(config.rollout.sampling),
        "max_tokens": config.rollout.sampling.max_tokens,
        "task_column": config.reward.task_column,
        "eval_tasks": {one.name: one.task for one in config.eval},
        "stop_token_ids": list(place.stop_token_ids),
        "greedy_last": config.algorithm.greedy_last,
        "takes_turns": config.rollout.gpu_sharing == "turns",
        "context_length": config.rollout.context_length,
        "deterministic": config.rollout.deterministic,
        "environment_digest": place.environment_digest,
    }
    return cls.model_validate(
        own
        | {name: value for name, value in found.items() if name in cls.model_fields}
        | {
            "broker": _plain(config.broker) | {"url": place.broker_url},
            "run_dir": place.run_dir,
            "tls": place.tls,
            "orchestrator_address": place.orchestrator_address(),
            "host": place.host,
            "announce": place.announce,
            "grpc_port": ports.grpc_port,
            "grpc_socket": place.socket_of(spec.name, ports),
            "http_port": ports.http_port,
            "instance": spec.instance,
        }
    )


def _plain(table: BaseModel) -> dict[str, Any]:
    values: dict[str, Any] = table.model_dump(mode="python", serialize_as_any=True)
    return values


def _without_ports(table: BaseModel) -> dict[str, Any]:
    values = _plain(table)
    if isinstance(table, Ports):
        for name in Ports.model_fields:
            del values[name]
    return values
