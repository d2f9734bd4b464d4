"""Plans each process: config file, ports and command line, at the start of a run and when it is scaled."""

from collections.abc import Iterator
from contextlib import suppress

from headrace.config.resolve import Resolved
from headrace.config.schema import RunFile
from headrace.config.services import MachineLayout, ProcessSpec, replica_spec, settings_of, specs, wanted_ports
from headrace.config.tables import Ports
from headrace.doctor.placement import placement
from headrace.supervisor.fork_server.client import ForkServer
from headrace.supervisor.once import python
from headrace.supervisor.ports import check_free, pick_ports
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.scaling import SERVICES
from headrace.wire.errors import ConfigError
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths


def choose_ports(resolved: Resolved, *, sockets: bool, check: bool = True) -> dict[str, Ports]:
    """Process name -> its ports: fixed ones checked, the others picked. Raises ConfigError naming the key.

    `sockets`: gRPC that has no fixed port gets none.
    """
    config = resolved.config
    wanted = {spec: wanted_ports(config, spec) for spec in specs(config)}
    fixed = [
        (getattr(ports, name), resolved.place(spec.service, name))
        for spec, ports in wanted.items()
        for name in Ports.model_fields
        if getattr(ports, name)
    ]
    if check:
        check_free(fixed)
    free = iter(pick_ports((1 if sockets else 2) * len(wanted), taken=[port for port, _ in fixed]))
    return {spec.name: _filled(ports, free, sockets) for spec, ports in wanted.items()}


def _filled(wanted: Ports, free: Iterator[int], sockets: bool) -> Ports:
    return Ports(grpc_port=wanted.grpc_port or (0 if sockets else next(free)), http_port=wanted.http_port or next(free))


class Planner:
    """Writes the configs and plans the processes of one run."""

    def __init__(
        self, config: RunFile, place: MachineLayout, env: dict[str, str], fork_server: ForkServer | None = None
    ) -> None:
        """`fork_server`: of the environment `env`."""
        self._config, self._place, self._env, self._fork_server = config, place, env, fork_server
        self._ports = dict(place.ports)

    def all(self) -> tuple[ProcessPlan, ...]:
        """Plans every process of the config; removes the configs of replicas from an earlier, larger start."""
        for service in SERVICES:
            for path in RunPaths(self._place.run_dir).config.glob(f"{service}-*.json"):
                # It may be of an earlier start with more replicas.
                with suppress(FileNotFoundError):
                    path.unlink()
        planned = specs(self._config)
        if (first := replica_spec("rollout", 0)) not in planned:
            self._write(first)  # For machines that join: they take its settings.
        return tuple(map(self._write, planned))

    def replica(self, service: str, index: int) -> ProcessPlan:
        """Plans one replica, within the config's count or not. Raises ConfigError if there is no port or GPU for it."""
        spec = replica_spec(service, index)
        if service == "rollout":
            self._check_gpus(spec, index)
            self._check_turns(spec, index)
        if service == "environment" and not self._config.environment.on:
            raise ConfigError("this run plays no episodes: [environment] has neither name nor tools")
        if spec.name not in self._ports:
            wanted = wanted_ports(self._config, spec)
            keys = [name for name in Ports.model_fields if getattr(wanted, name)]
            check_free([(getattr(wanted, name), f"[{service}] {name} of {spec.name}") for name in keys])
            taken = [getattr(ports, name) for ports in self._ports.values() for name in Ports.model_fields]
            free = iter(pick_ports(2, taken=taken))
            self._ports[spec.name] = _filled(wanted, free, self._place.sockets is not None)
        return self._write(spec)

    def _check_gpus(self, spec: ProcessSpec, index: int) -> None:
        gpus, count = placement(self._config).replica(index), self._place.gpus
        if gpus and count is not None and gpus.stop > count:
            raise ConfigError(f"{spec.name} would take GPU {gpus.stop - 1}, and this machine has {count}")

    def _check_turns(self, spec: ProcessSpec, index: int) -> None:
        ranks = self._config.trainer.ranks
        if self._config.rollout.gpu_sharing == "turns" and index >= ranks:
            raise ConfigError(
                f'{spec.name} would have no GPU: with rollout.gpu_sharing = "turns" there is one replica a rank of the '
                f"trainer ({ranks})"
            )

    def _write(self, spec: ProcessSpec) -> ProcessPlan:
        path = RunPaths(self._place.run_dir).settings(spec.name)
        ports = self._ports.get(spec.name, Ports())
        settings = settings_of(self._config, spec, self._place, ports)
        text = settings.model_dump_json(indent=2, serialize_as_any=True) + "\n"
        # The broker's password is in it.
        atomic.write_text(path, text, durable=False, mode=0o600)
        return ProcessPlan(
            name=spec.name,
            argv=python(f"headrace.services.{spec.service}", "--config", str(path)),
            env=self._env,
            grpc_port=ports.grpc_port,
            grpc_socket=settings.grpc_socket,
            http_port=ports.http_port,
            fork_server=self._fork_server,
        )
