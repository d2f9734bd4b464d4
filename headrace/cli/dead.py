"""The verb `dead`: groups that were given up, and another try for them."""

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

import typer

from headrace.cli.common import Json, TokenFile, Url, Where, reported_errors
from headrace.cli.operate import WHO
from headrace.inspect.output import Output
from headrace.inspect.tables import plain_table, show_table
from headrace.operate.client import OrchestratorClient, find_client
from headrace.wire.errors import ConfigError

_PAGE = 200


def dead(
    run_dir: Where = None,
    requeue: Annotated[
        list[str] | None,
        typer.Option("--requeue", help="Issue the prompt of this letter (its id) again; may be repeated."),
    ] = None,
    requeue_all: Annotated[bool, typer.Option("--requeue-all", help="Issue the prompts of all letters again.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Number of letters to show, newest first.")] = 50,
    url: Url = "",
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    with reported_errors(json=json) as output:
        if requeue and requeue_all:
            raise ConfigError("give --requeue ID or --requeue-all, not both")
        client = find_client(run_dir, url, token_file)
        chosen = waiting(client) if requeue_all else requeue or []
        said = [{"id": one, **client.post(f"/api/dead/{quote(one, safe='')}/requeue", {"who": WHO})} for one in chosen]
        for one in said:
            output.say(f"{one['id']}: {one['said']}")
        found = client.get("/api/dead", offset=0, limit=min(limit, _PAGE))
        output.in_json({**found, "requeued": said})
        if not output.json and not said:
            _show(found, output)


def waiting(client: OrchestratorClient) -> list[str]:
    """Ids of all letters that were not issued again."""
    found: dict[str, bool] = {}
    offset = 0
    while rows := client.get("/api/dead", offset=offset, limit=_PAGE)["rows"]:
        # One that comes meanwhile moves the others to the next page: they are seen twice.
        found |= {str(one["id"]): bool(one["requeued"]) for one in rows}
        offset += len(rows)
    return [one for one, requeued in found.items() if not requeued]


def _show(found: dict[str, Any], output: Output) -> None:
    rows: Sequence[dict[str, Any]] = found["rows"]
    if not rows:
        output.say("no dead letters")
        return
    titles = ("id", "group", "attempt", "purpose", "reason", "error", "requeued")
    keys = ("id", "group_id", "attempt", "purpose", "reason", "error")
    cells = ((*(str(one[key]) for key in keys), "yes" if one["requeued"] else "") for one in rows)
    # Ids are for `--requeue` and `explain`: they are never cut.
    show_table(output.console, plain_table(titles, cells, folds=titles[2:]))
    if found["total"] > len(rows):
        output.say(f"{found['total']} in all")
    output.say("`--requeue ID` issues one again")
