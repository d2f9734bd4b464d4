"""The verbs `certs init` and `certs rotate`."""

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, reported_errors
from headrace.inspect.output import Output
from headrace.operate.token_rotation import RotationPhase, rotate
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths

certs = typer.Typer(no_args_is_help=True)
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host", help="Name or address that each certificate names too, for tools that check it.", show_default=False
    ),
]
Days = Annotated[int, typer.Option("--days", min=1, max=3650, help="Days for which certificates are valid.")]


@certs.command("init")
def init(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="A new folder.")] = Path("certs"),
    host: Hosts = None,
    days: Days = 365,
    json: Json = False,
) -> None:
    """Makes an authority for development and a certificate for each role: HEADRACE_TLS=FOLDER uses them."""
    with reported_errors(json=json) as output:
        _check_extra()
        from headrace.operate.authority import AUTHORITY_KEY, make_authority

        make_authority(folder, hosts=host or (), days=days)
        output.say(f"{folder}: an authority and a certificate for each role and the broker, valid for {days} days")
        output.say(f"keep {folder / AUTHORITY_KEY} to yourself: no service needs it")
        output.in_json({"folder": str(folder), "days": days})


@certs.command("rotate")
def rotate_all(
    run_dir: Annotated[
        Path | None, typer.Argument(metavar="[RUN_DIR]", help="The run whose tokens are replaced.", show_default=False)
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option("--tokens", help="Their folder, instead of RUN_DIR/run/tokens.")
    ] = None,
    tls: Annotated[Path | None, typer.Option("--tls", help="Also renew the certificates in this folder.")] = None,
    lease_s: Annotated[
        float, typer.Option("--lease-s", min=5, help="Seconds from one phase to the next: old and new are valid.")
    ] = 60.0,
    phase: Annotated[
        RotationPhase | None,
        typer.Option("--phase", help="This phase of the tokens alone, where secrets are distributed in between."),
    ] = None,
    host: Hosts = None,
    days: Days = 365,
    json: Json = False,
) -> None:
    """Replaces the tokens of a live run, and with --tls its certificates; no service is restarted."""
    with reported_errors(json=json) as output:
        folder = tokens or (RunPaths(run_dir).tokens if run_dir else None)
        if folder is None and tls is None:
            raise ConfigError("name the run whose tokens are rotated, or a folder of them (--tokens), or --tls FOLDER")
        done = []
        if tls is not None:
            _check_extra()
            from headrace.operate.authority import renew

            renew(tls, hosts=host or (), days=days)
            output.say(f"{tls}: renewed the certificates of each role and the broker, valid for {days} days")
            done.append("certificates")
        if folder is not None:
            done += _rotate_tokens(folder, [phase] if phase else list(RotationPhase), lease_s, output)
        output.in_json({"done": done})


_SAID = {
    RotationPhase.ACCEPT: "new tokens are accepted beside the old ones",
    RotationPhase.USE: "services call with the new tokens",
    RotationPhase.RETIRE: "the old tokens are no longer accepted",
}


def _rotate_tokens(folder: Path, phases: list[RotationPhase], lease_s: float, output: Output) -> list[str]:
    for number, phase in enumerate(phases):
        if number:
            output.say(f"waiting {lease_s:g} s until all services have read that")
            time.sleep(lease_s)
        rotate(folder, phase)
        output.say(f"{folder}: {_SAID[phase]}")
    return [str(phase) for phase in phases]


def _check_extra() -> None:
    if find_spec("cryptography") is None:
        raise ConfigError(
            "the package `cryptography` is missing: install the extra `tls` (pip install 'headrace[tls]')"
        )
