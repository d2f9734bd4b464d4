"""`headrace prepare`: its command line."""

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import AcceptChangedCode, Json, reported_errors
from headrace.config.resolve import Resolved, resolve, settle
from headrace.demo.demo import prepared_demo
from headrace.doctor.exposure import exposures, in_words
from headrace.doctor.memory_finding import memory_plan
from headrace.inspect.output import Output
from headrace.run.prepare import check_new, prepare_elsewhere
from headrace.supervisor.lock import RunLock
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited, read_broker_url
from headrace.wire.rundir.layout import CONFINED, RunPaths


def prepare(
    context: typer.Context,
    run_dir: Annotated[Path, typer.Option("--run-dir", help="The run directory of all services.", show_default=False)],
    file: Annotated[Path | None, typer.Argument(metavar="RUN.toml", help="The config.", show_default=False)] = None,
    demo: Annotated[bool, typer.Option("--demo", help="The task of `headrace demo` instead of a RUN.toml.")] = False,
    broker: Annotated[str, typer.Option("--broker", help="Default: HEADRACE_BROKER__URL(_FILE), [broker] url.")] = "",
    orchestrator: Annotated[
        str, typer.Option("--orchestrator", metavar="HOST:PORT", help="gRPC address of the orchestrator.")
    ] = "orchestrator:7000",
    event_group: Annotated[
        list[str] | None,
        typer.Option("--event-group", metavar="SERVICE=GID", help="Group that may write to RUN/events/SERVICE alone."),
    ] = None,
    accept_changed_code: AcceptChangedCode = False,
    json: Json = False,
) -> None:
    with reported_errors(json=json, place=run_dir) as output, ExitStack() as held:
        resolved, lock = _resolve(context.obj, run_dir, file, broker, output, held, demo=demo)
        found = prepare_elsewhere(
            resolved,
            run_dir,
            orchestrator=orchestrator,
            environment=inherited(),
            event_groups=_event_groups(event_group or ()),
            accept_changed_code=accept_changed_code,
            lock=lock,
        )
        said = "resumed" if found.goes_on else f"{found.data.prompts} prompts, {found.data.eval_prompts} held out"
        output.say(f"prepared {found.run_dir}: {said}")
        encrypts = bool(inherited().get("HEADRACE_TLS"))
        if exposed := in_words(exposures(resolved.config, apart=True, encrypts=encrypts)):
            output.say(exposed)
        if (plan := memory_plan(settle(resolved, run_dir, goes_on=found.goes_on))).fix:
            output.say(f"memory plan: {plan.said}\nfix: {plan.fix}")
        if found.plays:
            output.say(
                "its rows are played: start the environment service too (Compose: --profile environment; Kubernetes: "
                "the component environment)"
            )
        output.in_json({"run_dir": str(found.run_dir), "goes_on": found.goes_on, **dataclasses.asdict(found.data)})


def _event_groups(options: Sequence[str]) -> dict[str, int]:
    """Service -> group. Raises ConfigError."""
    found = {}
    for option in options:
        service, _, group = option.partition("=")
        if service not in CONFINED or not group.isdecimal():
            raise ConfigError(f"--event-group {option}: give SERVICE=GID, a number for one of {', '.join(CONFINED)}")
        found[service] = int(group)
    return found


def _resolve(
    arguments: list[str], run_dir: Path, file: Path | None, broker: str, output: Output, held: ExitStack, *, demo: bool
) -> tuple[Resolved, RunLock | None]:
    """The config; with the lock of the run directory for a new demo, which `held` releases."""
    if demo == (file is not None):
        raise ConfigError("give a RUN.toml or --demo, one of them")
    environment = inherited()
    url = broker or read_broker_url(environment)
    arguments = [*arguments, *(["--broker.url", url] if url else [])]
    if file is not None:
        return resolve(file, arguments=arguments, environment=environment), None
    if RunPaths(run_dir).demo_model.is_dir():
        return resolve(RunPaths(run_dir).demo_toml, arguments=arguments, environment=environment), None
    return held.enter_context(prepared_demo(run_dir, arguments, environment, output.say, check=check_new))[:2]
