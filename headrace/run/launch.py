"""Makes a run directory and the plans of its processes from a resolved config; checks first, then writes."""

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from headrace.config import run_dir as folders
from headrace.config.resolve import DATA_SUFFIXES, Resolved
from headrace.config.reward_checks import has_models
from headrace.config.schema import RunFile
from headrace.config.services import LONGEST_SOCKET, MachineLayout
from headrace.config.settle import check_dtype, settle
from headrace.config.toml import to_toml
from headrace.data.__main__ import BAD_INPUT
from headrace.data.prepare import PreparedData, from_json
from headrace.doctor.placement import check_overlap, check_visible, placement, visible
from headrace.model.hub import fetch_model
from headrace.model.made_model import make_model, settle_path
from headrace.model.model_check import check_model
from headrace.run.certificates import certificates_of
from headrace.run.extras import check_extras
from headrace.run.nodes import check_nodes
from headrace.run.own_code import StagedCode, staged_code, staged_environment
from headrace.run.plans import Planner, choose_ports
from headrace.run.played import check_same_environment
from headrace.run.preload import begin_fork_server
from headrace.run.receipts import record_config
from headrace.services.trainer.algorithms.own import is_own
from headrace.services.trainer.config.checks import group_problem
from headrace.supervisor.broker import EmbeddedBroker, check_external, embedded, embedded_url, find_server
from headrace.supervisor.fork_server.client import ForkServer
from headrace.supervisor.lock import RunLock
from headrace.supervisor.once import ChildFailedError, child_environment, python, run_once
from headrace.supervisor.process import ProcessPlan
from headrace.supervisor.socket_folder import SocketFolder
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rundir.layout import RunPaths

_PREPARE_TIMEOUT_S = 3600.0
_CHECK_TIMEOUT_S = 120.0
_BASE_TIMEOUT_S = 3600.0


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
) -> PreparedRun:
    """Checks everything, prepares the data and writes every process's config.

    `dry_run`: the machine is not checked here, but by `headrace.cli.dry_run`. `accept_changed_code`: a resumed run goes
    on with an `algorithm.path` that differs from its copy. Raises ConfigError or DataError; a run
    directory that did not exist before is then removed again.
    """
    run_dir = run_dir.resolve()
    resolved, to_make = settle_path(settle(resolved, run_dir, goes_on=resume), run_dir)
    (folders.check_resumable(run_dir, resolved.config) if resume else folders.check_fresh(run_dir))
    check_nodes(resolved)
    check_overlap(resolved)
    resolved = fetch_model(resolved, run_dir, goes_on=resume, environment=environment)
    config = resolved.config
    env = child_environment(dict(environment), threads=config.run.threads, device=config.run.device)
    check_input(resolved, has_model=to_make is None)
    if not dry_run:
        check_visible(resolved, environment)
        check_around(resolved, fresh=not resume)
    tls = certificates_of(environment)
    ports = choose_ports(resolved, sockets=tls is None, check=not dry_run)
    absent = folders.absent_folders(run_dir)
    folders.make_private(absent)
    held = ExitStack()
    lock = RunLock(run_dir)
    held.callback(lock.release)
    try:
        if to_make and not (resume and config.model.path.is_dir()):
            make_model(to_make, config.model.path)
        forks = None if dry_run else begin_fork_server(config, env)
        if forks is not None:
            held.callback(forks.close)
        data = from_json(
            prepare_files(config, run_dir, env, keep=resume, file=RunPaths.prompts.name, fork_server=forks)
        )
        check_rows(config, run_dir, env, forks)
        broker = None if config.broker.url or dry_run else embedded(run_dir, env)
        url = broker.url if broker else config.broker.url or embedded_url(run_dir)
        gpus = visible(environment) if placement(config).needed else None
        place = MachineLayout(
            run_dir,
            url,
            ports,
            data.stop_token_ids,
            first_gpu=placement(config).first,
            gpus=gpus,
            environment_digest=check_same_environment(resolved, run_dir),
            tls=tls,
            sockets=None if tls else _sockets(run_dir, held, dry_run=dry_run),
        )
        planner = Planner(config, place, env, forks)
        plans = planner.all()
        _check_reward(resolved, run_dir, env, forks)
        with staged_environment(resolved, run_dir, resume=resume) as played:
            _check_environment(resolved, run_dir, env, played)
            if played is not None:
                played.publish()
        with staged_code(resolved, run_dir, resume=resume, accept_changed=accept_changed_code) as code:
            _check_functions(resolved, run_dir, env, code, forks)
            if code is not None:
                code.publish()
        write_engine_base(resolved, run_dir, env, settings=RunPaths(run_dir).settings("trainer"))
    except BaseException:
        held.close()
        folders.drop_stage(run_dir)
        folders.take_away(absent)
        raise
    return PreparedRun(config, run_dir, data, plans, planner, broker, lock, held)


def _sockets(run_dir: Path, held: ExitStack, *, dry_run: bool) -> Path:
    """The folder in which gRPC is served: other users of this machine do not even reach it."""
    folder = RunPaths(run_dir).rpc_sockets
    if dry_run:
        return folder
    made = SocketFolder.make(folder, LONGEST_SOCKET)
    held.callback(made.clean)
    return made.path


def check_input(resolved: Resolved, *, has_model: bool = True) -> None:
    """Checks a settled config as far as any machine can without writing. Raises ConfigError or DataError."""
    config = resolved.config
    check_dtype(resolved)
    try:
        if has_model:
            check_model(config.model.path, engine=config.rollout.engine)
    except ConfigError as error:
        raise ConfigError(f"{resolved.place('model', 'path')}: {error}") from None
    reason = group_problem(config.algorithm, config.batch.group_size)
    if reason is not None:
        raise ConfigError(f"{resolved.place('batch', 'group_size')}: {reason}")
    check_data_files(resolved)


def check_around(resolved: Resolved, *, fresh: bool) -> None:
    """Checks that this machine has the packages and the broker of the config. Raises ConfigError."""
    config = resolved.config
    check_extras(resolved)
    if config.broker.url:
        seconds = config.broker.connect_timeout_s
        place = resolved.place("broker", "url")
        asyncio.run(check_external(config.broker.url, place, seconds, run_id=config.run.id, fresh=fresh))
    else:
        find_server()


def check_data_files(resolved: Resolved) -> None:
    """Raises DataError if a data file does not exist."""
    for key in ("path", "eval_path"):
        path = getattr(resolved.config.data, key)
        if path.endswith(DATA_SUFFIXES) and not Path(path).is_file():
            raise DataError(f"{resolved.place('data', key)}: there is no file {path}")


def prepare_files(
    config: RunFile,
    run_dir: Path,
    env: dict[str, str],
    *,
    keep: bool,
    file: str,
    fork_server: ForkServer | None = None,
) -> str:
    """Prepares the data in a child, into a stage folder, and returns its summary as JSON.

    With `keep`, an existing `file` and its summary stay as they are. Raises DataError.
    """
    found = RunPaths(run_dir).data_summary
    stage = folders.stage(run_dir)
    RunPaths(stage).config.mkdir()
    toml = RunPaths(stage).run_toml
    toml.write_text(to_toml(config.model_dump(mode="json", serialize_as_any=True)), encoding="utf-8")
    if keep and found.is_file() and (run_dir / file).is_file():
        text = found.read_text(encoding="utf-8")
    else:
        text = _run_preparation(toml, stage, env, fork_server)
    RunPaths(stage).data_summary.write_text(text, encoding="utf-8")
    if folders.has_begun(run_dir):
        record_config(run_dir, stage)
    folders.publish(run_dir, stage)
    return text


def _run_preparation(toml: Path, stage: Path, env: dict[str, str], forks: ForkServer | None) -> str:
    argv = python("headrace.data", "--config", str(toml), "--out", str(stage))
    # The second: that there is no torch, which this process leaves out.
    quiet = {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"}
    try:
        out = run_once(
            "preparing the data", argv, env=env | quiet, log=None, timeout_s=_PREPARE_TIMEOUT_S, fork_server=forks
        )
    except ChildFailedError as error:
        raise DataError(error.message if error.status == BAD_INPUT else str(error)) from None
    return out.strip().splitlines()[-1]


def check_rows(config: RunFile, run_dir: Path, env: dict[str, str], forks: ForkServer | None = None) -> None:
    """Checks the rows against the scoring models, also when a run is resumed: it keeps its data, not its scorers."""
    if not has_models(config):
        return
    argv = python("headrace.data", "--check", "--config", str(RunPaths(run_dir).run_toml), "--out", str(run_dir))
    try:
        run_once("checking the rows", argv, env=env, log=None, timeout_s=_CHECK_TIMEOUT_S, fork_server=forks)
    except ChildFailedError as error:
        raise DataError(error.message if error.status == BAD_INPUT else str(error)) from None


def _check_reward(resolved: Resolved, run_dir: Path, env: dict[str, str], forks: ForkServer | None) -> None:
    """Checks in a reward service that its scorers load: a user's own module runs only there."""
    argv = python("headrace.services.reward", "--check", "--config", str(RunPaths(run_dir).settings("reward-0")))
    try:
        run_once("checking the scorers", argv, env=env, log=None, timeout_s=_CHECK_TIMEOUT_S, fork_server=forks)
    except ChildFailedError as error:
        raise ConfigError(f"{resolved.place('reward', 'scorers')}: {_told(error.message)}") from None


def _check_environment(resolved: Resolved, run_dir: Path, env: dict[str, str], code: StagedCode | None) -> None:
    """Loads the environment in a child of its service, as an episode would."""
    table = resolved.config.environment
    if not table.on:
        return
    folder = ("--code", str(code.aside)) if code is not None else ()
    settings = ("--config", str(RunPaths(run_dir).settings("environment-0")))
    argv = python("headrace.services.environment", "--check", *folder, *settings)
    try:
        run_once("loading the environment", argv, env=env, log=None, timeout_s=_CHECK_TIMEOUT_S)
    except ChildFailedError as error:
        message = _told(error.message)
        if code is not None:
            # The user edits the folder, not its copy.
            message = message.replace(str(code.aside), str(table.path))
        key = "renderer" if message.startswith("environment.renderer") else table.key
        raise ConfigError(f"{resolved.place('environment', key)}: {message}") from None


def _check_functions(
    resolved: Resolved, run_dir: Path, env: dict[str, str], code: StagedCode | None, forks: ForkServer | None
) -> None:
    """Calls the user's own functions of the algorithm in a trainer process, on a made batch of the run's shapes."""
    table = resolved.config.algorithm
    if not table.own_functions:
        return
    folder = ("--code", str(code.aside)) if code is not None else ()
    settings = ("--config", str(RunPaths(run_dir).settings("trainer")))
    argv = python("headrace.services.trainer", "--check-algorithm", *folder, *settings)
    key = "advantage" if is_own(table.advantage) else "policy_loss"
    try:
        run_once(
            "checking the algorithm's functions", argv, env=env, log=None, timeout_s=_CHECK_TIMEOUT_S, fork_server=forks
        )
    except ChildFailedError as error:
        message = _told(error.message)
        if code is not None:
            # The user edits the folder, not its copy.
            message = message.replace(str(code.aside), str(table.path))
        raise ConfigError(f"{resolved.place('algorithm', key)}: {message}") from None


def write_engine_base(resolved: Resolved, run_dir: Path, env: dict[str, str], *, settings: Path) -> None:
    """Writes the base model that the engines of a QLoRA run load, rounded as in training, in a trainer process."""
    if resolved.config.model.lora.quantize == "none":
        return
    argv = python("headrace.services.trainer", "--write-base", "--config", str(settings))
    try:
        run_once("writing the engines' base model", argv, env=env, log=None, timeout_s=_BASE_TIMEOUT_S)
    except ChildFailedError as error:
        raise ConfigError(f"{resolved.place('model', 'lora', 'quantize')}: {_told(error.message)}") from None


def _told(log: str) -> str:
    """The message with which a service refused its settings, from its log."""
    try:
        line: dict[str, str] = json.loads(log.splitlines()[-1])
        return line.get("error", log)
    except (json.JSONDecodeError, IndexError):
        return log


def inherited_environment() -> dict[str, str]:
    """The environment that this process was started with."""
    return dict(os.environ)
