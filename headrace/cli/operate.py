"""The verbs that act on a live run: `pause`, `resume`, `checkpoint`, `stop`, `drain`, `scale`."""

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from headrace.cli.common import Json, RunDir, TokenFile, Url, Where, reported_errors
from headrace.operate.client import OrchestratorClient, find_client
from headrace.operate.scale import check_request
from headrace.operate.scale import scale as scale_run

_ACTION_S = 60.0
WHO = "cli"
"""As acts are noted in the event log."""


def _action(name: str) -> Callable[..., None]:
    def act(run_dir: Where = None, url: Url = "", token_file: TokenFile = None, json: Json = False) -> None:
        _act(name, {}, lambda: find_client(run_dir, url, token_file), json=json)

    return act


pause, resume, checkpoint, stop = map(_action, ("pause", "resume", "checkpoint", "stop"))


def drain(
    replica: Annotated[str, typer.Argument(help="Id of the replica, such as rollout-1.", show_default=False)],
    run_dir: Where = None,
    undo: Annotated[bool, typer.Option("--undo", help="End the drain.")] = False,
    url: Url = "",
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    _act("drain", {"replica": replica, "on": not undo}, lambda: find_client(run_dir, url, token_file), json=json)


def scale(
    service: Annotated[str, typer.Argument(help="rollout, reward or environment", show_default=False)],
    count: Annotated[str, typer.Argument(metavar="N", help="Number of replicas to run.", show_default=False)],
    folder: Where = None,
    run_dir: RunDir = None,
    url: Url = "",
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    if url:
        with reported_errors(json=json):
            body = {"service": service, "count": check_request(service, count)}
        _act("scale", body, lambda: find_client(folder or run_dir, url, token_file), json=json)
        return
    with reported_errors(json=json) as output:
        lines = scale_run(service, count, folder or run_dir)
        for line in lines:
            output.say(line)
        output.in_json({"said": "; ".join(lines)})


def _act(action: str, body: Mapping[str, object], find: Callable[[], OrchestratorClient], *, json: bool) -> None:
    with reported_errors(json=json) as output:
        said = find().post(f"/api/actions/{action}", {**body, "who": WHO}, _ACTION_S)
        output.say(str(said["said"]))
        output.in_json(said)
