"""`headrace prepare`: makes a run directory for services that something else starts, such as Compose or Kubernetes.

Makes the same checks and files as `headrace train`, without a supervisor: each service finds its settings in
RUN/config/SERVICE.json, listens on the same two ports of its own container, and reads the rest from its environment
(`headrace.wire.process.environment`). Repeated, it keeps what exists and rewrites the settings: a stopped run resumes.
"""

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import parse_qs, urlsplit

from headrace.config import run_dir as folders
from headrace.config.resolve import Resolved, without_password
from headrace.config.schema import RunFile
from headrace.config.services import MachineLayout, ProcessSpec, settings_of
from headrace.config.tables import Ports
from headrace.data.prepare import PreparedData, from_json
from headrace.model.made_model import make_model_of
from headrace.run.own_code import staged_code, staged_environment
from headrace.run.played import check_same_environment
from headrace.run.preparation.data_files import prepare_files
from headrace.run.preparation.input_checks import check_around, check_input
from headrace.run.preparation.locked_start import locked_start, settled_start
from headrace.run.preparation.service_checks import check_rows, write_engine_base
from headrace.supervisor.lock import RunLock
from headrace.supervisor.once import child_environment
from headrace.wire.access.tokens import make_tokens, remove_tokens
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import TOKENS
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths

GRPC_PORT = 7000
HTTP_PORT = 8080
EVERYWHERE = "0.0.0.0"


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """The prepared run directory."""

    run_dir: Path
    data: PreparedData
    goes_on: bool
    """The directory already held a run."""
    plays: bool
    """Its rows are played: the environment service is needed too."""


def prepare_elsewhere(
    resolved: Resolved,
    run_dir: Path,
    *,
    orchestrator: str,
    environment: Mapping[str, str],
    event_groups: Mapping[str, int] = MappingProxyType({}),
    accept_changed_code: bool = False,
    lock: RunLock | None = None,
) -> Prepared:
    """Checks the config and the data, and writes the run directory; an existing run is continued.

    `orchestrator`: the host:port of its gRPC server. `event_groups`: the group of each service that may write to its
    own folder of the run directory alone. The broker's password is not written: services take the whole URL from their
    environment; nor are tokens, if HEADRACE_TOKENS names a folder. `lock`: the run directory's, if the caller holds it.
    Raises ConfigError or DataError; folders that did not exist before are then removed again.
    """
    run_dir = run_dir.resolve()
    goes_on = folders.has_begun(run_dir)
    stage = resolved.config.run.stage
    if stage != "rl":
        raise ConfigError(f"{resolved.place('run', 'stage')}: {stage!r} runs alone: use `headrace train`")
    _check_url(resolved)
    resolved = settled_start(resolved, run_dir, goes_on=goes_on, environment=environment)
    config = resolved.config
    env = child_environment(dict(environment), threads=config.run.threads, device=config.run.device)
    check_input(resolved)
    check_around(resolved, fresh=not goes_on)
    with locked_start(run_dir, lock) as (_, held):
        make_model_of(resolved, goes_on=goes_on)
        shown = without_password(resolved)
        data = from_json(prepare_files(shown, run_dir, env, keep=goes_on, file=RunPaths.prompts.name))
        check_rows(shown, run_dir, env)
        place = _layout(shown, run_dir, data, orchestrator, check_same_environment(resolved, run_dir))
        write_engine_base(resolved, run_dir, env, settings=_write(shown, place, "trainer"))
        _share(run_dir, environment)
        played_by = ("environment",) if config.environment.on else ()
        folders.make_event_folders(run_dir, ("reward", *played_by), event_groups)
        _copy_code(resolved, run_dir, goes_on=goes_on, accept_changed=accept_changed_code)
        _copy_tokenizer(config.model.path, run_dir)
        # The orchestrator's comes last: a process that waits for it waits for all of them.
        for service in ("reward", "rollout", *played_by, "orchestrator"):
            _write(shown, place, service)
    held.close()
    return Prepared(run_dir, data, goes_on, plays=config.environment.on)


def _layout(config: RunFile, run_dir: Path, data: PreparedData, orchestrator: str, digest: str) -> MachineLayout:
    """`config` without the broker's password; `digest` of the environment."""
    return MachineLayout(
        run_dir,
        config.broker.url,
        {},
        data.stop_token_ids,
        host=EVERYWHERE,
        orchestrator=orchestrator,
        environment_digest=digest,
    )


def _copy_code(resolved: Resolved, run_dir: Path, *, goes_on: bool, accept_changed: bool) -> None:
    """Copies the user's own code of the algorithm and the environment.

    Each is loaded and checked by its own service at its start: this process may have neither torch nor a sandbox.
    """
    with staged_code(resolved, run_dir, resume=goes_on, accept_changed=accept_changed) as code:
        if code is not None:
            code.publish()
    with staged_environment(resolved, run_dir, resume=goes_on) as played:
        if played is not None:
            played.publish()


def check_new(resolved: Resolved) -> None:
    """Raises ConfigError if a new run of this config finds no broker, or one that holds the streams of its id."""
    _check_url(resolved)
    check_around(resolved, fresh=True)


def _share(run_dir: Path, environment: Mapping[str, str]) -> None:
    """Makes the tokens, as services may see the run directory read-only; removes them if services have others."""
    folders.let_group_read(run_dir)
    if environment.get(TOKENS):
        remove_tokens(RunPaths(run_dir).tokens)
    else:
        make_tokens(RunPaths(run_dir).tokens)


def _write(config: RunFile, place: MachineLayout, service: str) -> Path:
    ports = Ports(grpc_port=GRPC_PORT, http_port=HTTP_PORT)
    settings = settings_of(config, ProcessSpec(service, "0", service), place, ports)
    path = RunPaths(place.run_dir).settings(service)
    text = settings.model_dump_json(indent=2, serialize_as_any=True) + "\n"
    # `headrace prepare` writes it at each start of the deployment.
    atomic.write_text(path, text, durable=False)
    return path


def _copy_tokenizer(model: Path, run_dir: Path) -> None:
    """Copies the tokenizer for the dashboard, which shows tokens as text: the orchestrator may not see the model."""
    target = RunPaths(run_dir).tokenizer
    file = model / target.name
    if file.is_file():
        shutil.copyfile(file, target)


def _check_url(resolved: Resolved) -> None:
    """Raises ConfigError without a broker's URL, or for a secret in its query, which the run directory would keep."""
    if not resolved.config.broker.url:
        raise ConfigError("no broker: give --broker redis://HOST:PORT, or [broker] url")
    given = parse_qs(urlsplit(resolved.config.broker.url).query)
    secrets = sorted({"password", "username", "ssl_password"}.intersection(given))
    if secrets:
        raise ConfigError(
            f"{resolved.place('broker', 'url')}: {secrets[0]} stands behind the '?', and would be written into the run "
            "directory; give it as redis://USER:PASSWORD@HOST"
        )
