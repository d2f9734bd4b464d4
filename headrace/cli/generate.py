"""The verb `generate`."""

import json as json_
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from pydantic import TypeAdapter
from rich.console import Group

from headrace.cli.common import Json, TokenFile, Url, Where, json_line, reported_errors
from headrace.cli.generate_answer import ANSWER_S, PATH, answer_from_checkpoint, stream_answer
from headrace.cli.play_episode import play_episode, task_of
from headrace.inspect.conversation import conversation
from headrace.inspect.output import Output
from headrace.inspect.tables import show_table
from headrace.inspect.terminal import printable
from headrace.operate.client import find_client, is_alive
from headrace.wire.api.episodes import EpisodeView
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited

_LOGPROBS = TypeAdapter(list[float | None])
_Request: TypeAlias = dict[str, object]


def generate(
    run_dir: Where = None,
    prompt: Annotated[str, typer.Option("--prompt", help="What the user says.")] = "",
    messages: Annotated[
        Path | None, typer.Option("--messages", help='JSON list of {"role", "content"}.', show_default=False)
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, help="Default: as many as there is room.", show_default=False)
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature", min=0, help="0 = greedy. Default: 1; with --environment the run's.", show_default=False
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", min=0, max=1, help="Default: 1; with --environment the run's.", show_default=False),
    ] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="End before this text; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, show_default=False)] = None,
    environment: Annotated[
        bool, typer.Option("--environment", help="Play an episode of the run's environment, and show it.")
    ] = False,
    task: Annotated[
        str, typer.Option("--task", help="With --environment: the task, a JSON object.", show_default=False)
    ] = "",
    held_out: Annotated[
        int, typer.Option("--held-out", min=0, help="With --environment: else the held-out task of this number.")
    ] = 0,
    step: Annotated[
        int | None, typer.Option("--step", min=1, help="Of this checkpoint, also of a live run.", show_default=False)
    ] = None,
    url: Url = "",
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    named = {"max_tokens": max_tokens, "temperature": temperature, "top_p": top_p, "seed": seed}
    given: _Request = {key: value for key, value in named.items() if value is not None}
    with reported_errors(json=json, stopped="stopped") as output:
        if environment:
            if messages is not None or stop:
                raise ConfigError("--environment plays a task: give --task, --prompt or --held-out alone")
            _play(output, run_dir, url, lambda of: {"task_json": task_of(of, prompt, task, held_out), **given}, step)
            return
        if task:
            raise ConfigError("--task is a task of an environment: give --environment too")
        request = {"messages": _messages(prompt, messages), "temperature": 1.0, "top_p": 1.0, "stop": stop or []}
        _answer(output, run_dir, url, token_file, request | given, step)


def _play(
    output: Output, run_dir: Path | None, url: str, request: Callable[[Path], _Request], step: int | None
) -> None:
    """Plays the episode of `request`, made for the run directory, and shows it."""
    if run_dir is None or url:
        raise ConfigError("--environment needs the run directory, which has the environment")
    is_live = step is None and is_alive(run_dir)
    played = play_episode(run_dir, request(run_dir), inherited(), is_live=is_live, step=step)
    if output.json:
        output.result(json_line(played))
        return
    episode = EpisodeView.model_validate(played["episode"])
    logprobs = _LOGPROBS.validate_python(played["logprobs"])
    show_table(output.console, Group(*conversation(episode, logprobs, str(played["finish_reason"]))))


def _answer(
    output: Output, run_dir: Path | None, url: str, token_file: Path | None, request: _Request, step: int | None
) -> None:
    """Answers by a live run if there is one, else by a checkpoint."""
    if step is not None and (url or run_dir is None):
        raise ConfigError("--step needs the run directory that holds the checkpoint")
    if run_dir is not None and not url and (step is not None or not is_alive(run_dir)):
        found = answer_from_checkpoint(run_dir, request, inherited(), step=step)
        output.result(json_line(found) if output.json else printable(found["text"]))
        return
    client = find_client(run_dir, url, token_file)
    if output.json:
        output.result(json_line(client.post(PATH, request, ANSWER_S)))
        return
    for text in stream_answer(client, request):
        sys.stdout.write(printable(text))
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
