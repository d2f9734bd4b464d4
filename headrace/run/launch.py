"""Makes a run directory and the plans of its processes from a resolved config; checks first, then writes."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from headrace.config.resolve import Resolved
from headrace.config.schema import RunFile
from headrace.config.services import LONGEST_SOCKET, MachineLayout
from headrace.config.tables import Ports
from headrace.data.prepare import PreparedData, from_json
from headrace.doctor.placement import check_overlap, check_visible, placement, visible
from headrace.model.made_model import make_model_of
from headrace.run.certificates import certificates_of
from headrace.run.joining.nodes import announced_address, check_nodes
from headrace.run.own_code import staged_code, staged_environment
from headrace.run.plans import Planner, choose_ports
from headrace.run.played import check_same_environment
from headrace.run.preload import begin_fork_server
from headrace.run.preparation.data_files import prepare_files
from headrace.run.preparation.input_checks import check_around, check_input
from headrace.run.preparation.locked_start import locked_start, settled_start
from headrace.run.preparation.service_checks import (
    check_environment,
    check_functions,
    check_reward,
    check_rows,
    write_engine_base,
)
from headrace.supervisor.broker import EmbeddedBroker, embedded, embedded_url
from headrace.supervisor.fork_server.client import ForkServer
from headrace.supervisor.lock import RunLock
from headrace.supervisor.once import child_environment
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.socket_folder import SocketFolder
from headrace.wire.rundir.layout import RunPaths


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run directory that is ready to start."""

    config: RunFile
    run_dir: Path
    data: PreparedData
    plans: tuple[ProcessPlan, ...]
    planner: Planner
    """Plans further replicas."""
    broker: EmbeddedBroker | None
    lock: RunLock
    held: ExitStack
    """Fork server, sockets and lock, until the end of the run."""


def prepare_run(
    resolved: Resolved,
    run_dir: Path,
    *,
    resume: bool,
    environment: Mapping[str, str],
    dry_run: bool = False,
    accept_changed_code: bool = False,
    lock: RunLock | None = None,
    forks: ForkServer | None = None,
) -> PreparedRun:
    """Checks everything, prepares the data and writes every process's config.

    `dry_run`: the machine is not checked here, but by `headrace.cli.dry_run`. `accept_changed_code`: a resumed run goes
    on with an `algorithm.path` that differs from its copy. `lock`: the run directory's, if the caller holds it.
    `forks`: the run's fork server, if it has begun. Raises ConfigError or DataError; a run directory that did not
    exist before is then removed again.
    """
    run_dir = run_dir.resolve()
    options = _Options(resume, dry_run, accept_changed_code, environment)
    launch = _checked(resolved, run_dir, options)
    with locked_start(run_dir, lock) as (taken, held):
        return launch.write(taken, held, forks)


@dataclass(frozen=True, slots=True)
class _Options:
    resume: bool
    dry_run: bool
    accept_changed_code: bool
    environment: Mapping[str, str]


def _checked(resolved: Resolved, run_dir: Path, options: _Options) -> "_Launch":
    """Settles the config and checks it as far as that is possible before anything is written."""
    resume, dry_run = options.resume, options.dry_run
    check_nodes(resolved)
    check_overlap(resolved)
    resolved = settled_start(resolved, run_dir, goes_on=resume, environment=options.environment)
    check_input(resolved, scan=dry_run)
    if not dry_run:
        check_visible(resolved, options.environment)
        check_around(resolved, fresh=not resume)
    tls = certificates_of(options.environment)
    announce = announced_address(options.environment)
    ports = choose_ports(resolved, sockets=tls is None and not announce, check=not dry_run)
    return _Launch(resolved, run_dir, options, tls, announce, ports)


@dataclass(frozen=True, slots=True)
class _Launch:
    """A run that has been checked, and is to be written."""

    resolved: Resolved
    run_dir: Path
    options: _Options
    tls: Path | None
    announce: str
    """The address by which other machines reach the services; empty = none does."""
    ports: dict[str, Ports]

    def write(self, lock: RunLock, held: ExitStack, forks: ForkServer | None) -> PreparedRun:
        """Writes the run directory; what is to be closed at the run's end goes into `held`."""
        config, run_dir, resume = self.resolved.config, self.run_dir, self.options.resume
        env = child_environment(dict(self.options.environment), threads=config.run.threads, device=config.run.device)
        make_model_of(self.resolved, goes_on=resume)
        if forks is None and not self.options.dry_run:
            forks = begin_fork_server(config, env)
        if forks is not None:
            held.callback(forks.close)
        data = from_json(
            prepare_files(config, run_dir, env, keep=resume, file=RunPaths.prompts.name, fork_server=forks)
        )
        check_rows(config, run_dir, env, forks)
        broker = None if config.broker.url or self.options.dry_run else embedded(run_dir, env, self.announce)
        url = broker.url if broker else config.broker.url or embedded_url(run_dir)
        planner = Planner(config, self._layout(url, data, held), env, forks)
        plans = planner.all()
        self._try_services(env, forks)
        return PreparedRun(config, run_dir, data, plans, planner, broker, lock, held)

    def _layout(self, url: str, data: PreparedData, held: ExitStack) -> MachineLayout:
        place = placement(self.resolved.config)
        return MachineLayout(
            self.run_dir,
            url,
            self.ports,
            data.stop_token_ids,
            first_gpu=place.first,
            gpus=visible(self.options.environment) if place.needed else None,
            environment_digest=check_same_environment(self.resolved, self.run_dir),
            tls=self.tls,
            sockets=None if self.tls or self.announce else _sockets(self.run_dir, held, dry_run=self.options.dry_run),
            announce=self.announce,
        )

    def _try_services(self, env: dict[str, str], forks: ForkServer | None) -> None:
        """Lets services load the user's code, whose copies are published once it works, and write QLoRA's base."""
        resolved, run_dir, resume = self.resolved, self.run_dir, self.options.resume
        check_reward(resolved, run_dir, env, forks)
        with staged_environment(resolved, run_dir, resume=resume) as played:
            check_environment(resolved, run_dir, env, played)
            if played is not None:
                played.publish()
        with staged_code(resolved, run_dir, resume=resume, accept_changed=self.options.accept_changed_code) as code:
            check_functions(resolved, run_dir, env, code, forks)
            if code is not None:
                code.publish()
        write_engine_base(resolved, run_dir, env, settings=RunPaths(run_dir).settings("trainer"))


def _sockets(run_dir: Path, held: ExitStack, *, dry_run: bool) -> Path:
    """The folder in which gRPC is served: other users of this machine do not even reach it."""
    folder = RunPaths(run_dir).rpc_sockets
    if dry_run:
        return folder
    made = SocketFolder.make(folder, LONGEST_SOCKET)
    held.callback(made.clean)
    return made.path
