"""The verb `generate`."""

import json as json_
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common import Json, json_line, reported_errors
from headrace.cli.generate_answer import ANSWER_S, PATH, answer_from_checkpoint, stream_answer
from headrace.cli.operate import TokenFile, Url, Where
from headrace.operate.client import find_client, is_alive
from headrace.run.execute import Output
from headrace.run.launch import inherited_environment
from headrace.wire.errors import ConfigError


def generate(
    run_dir: Where = None,
    prompt: Annotated[str, typer.Option("--prompt", help="What the user says.")] = "",
    messages: Annotated[
        Path | None, typer.Option("--messages", help='JSON list of {"role", "content"}.', show_default=False)
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, help="Default: as many as there is room.", show_default=False)
    ] = None,
    temperature: Annotated[float, typer.Option("--temperature", min=0, help="0 = greedy.")] = 1.0,
    top_p: Annotated[float, typer.Option("--top-p", min=0, max=1)] = 1.0,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="End before this text; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, show_default=False)] = None,
    step: Annotated[
        int | None, typer.Option("--step", min=1, help="Of this checkpoint, also of a live run.", show_default=False)
    ] = None,
    url: Url = "",
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Generates an answer with the current policy of a live run, or with the newest checkpoint."""
    output = Output.choose(json=json)
    with reported_errors(output, stopped="stopped"):
        request: dict[str, object] = {
            "messages": _messages(prompt, messages),
            "temperature": temperature,
            "top_p": top_p,
            "stop": stop or [],
            **{key: value for key, value in (("max_tokens", max_tokens), ("seed", seed)) if value is not None},
        }
        if step is not None and (url or run_dir is None):
            raise ConfigError("--step needs the run directory that holds the checkpoint")
        if run_dir is not None and not url and (step is not None or not is_alive(run_dir)):
            found = answer_from_checkpoint(run_dir, request, inherited_environment(), step=step)
            output.result(json_line(found) if json else found["text"])
            return
        client = find_client(run_dir, url, token_file)
        if json:
            output.result(json_line(client.post(PATH, request, ANSWER_S)))
            return
        for text in stream_answer(client, request):
            sys.stdout.write(text)
            sys.stdout.flush()
        output.result("")


def _messages(prompt: str, file: Path | None) -> list[object]:
    if bool(prompt) == bool(file):
        raise ConfigError("give --prompt TEXT or --messages FILE")
    if file is None:
        return [{"role": "user", "content": prompt}]
    try:
        found = json_.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--messages {file}: {error}") from None
    if not isinstance(found, list) or not found:
        raise ConfigError(f"--messages {file}: not a JSON list of messages")
    return found
