"""The verbs `generate` and `chat`."""

import json as json_
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from pydantic import TypeAdapter
from rich.console import Group

from headrace.cli.common import Json, TokenFile, Url, json_line, reported_errors
from headrace.cli.generate_answer import ANSWER_S, PATH, is_model, model_answers, stream_answer
from headrace.cli.play_episode import play_episode, task_of
from headrace.inspect.conversation import conversation
from headrace.inspect.output import Output
from headrace.inspect.tables import show_table
from headrace.inspect.terminal import printable
from headrace.operate.client import OrchestratorClient, find_client, is_alive
from headrace.wire.api.episodes import EpisodeView
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.process.environment import inherited

_LOGPROBS = TypeAdapter(list[float | None])
_Request: TypeAlias = dict[str, object]
_PLAIN: _Request = {"temperature": 1.0, "top_p": 1.0}
_Answer: TypeAlias = Callable[[Mapping[str, object]], Iterator[dict[str, Any]]]
RunOrModel = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN|MODEL", help="A run directory, or a model's folder. Default: the one live run in runs/."
    ),
]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", min=1, help="Default: as many as there is room.")]
Temperature = Annotated[
    float | None, typer.Option("--temperature", min=0, help="0 = greedy. Default: 1; with --environment the run's.")
]
TopP = Annotated[
    float | None, typer.Option("--top-p", min=1e-6, max=1, help="Default: 1; with --environment the run's.")
]
Stop = Annotated[list[str] | None, typer.Option("--stop", help="End before this text; may be repeated.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0)]
Step = Annotated[int | None, typer.Option("--step", min=1, help="Of this checkpoint, also of a live run.")]


def generate(
    where: RunOrModel = None,
    prompt: Annotated[str, typer.Option("--prompt", help="What the user says.")] = "",
    messages: Annotated[
        Path | None, typer.Option("--messages", help='JSON list of {"role", "content"}.', show_default=False)
    ] = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    stop: Stop = None,
    seed: Seed = None,
    environment: Annotated[
        bool, typer.Option("--environment", help="Play an episode of the run's environment, and show it.")
    ] = False,
    task: Annotated[
        str, typer.Option("--task", help="With --environment: the task, a JSON object.", show_default=False)
    ] = "",
    held_out: Annotated[
        int, typer.Option("--held-out", min=0, help="With --environment: else the held-out task of this number.")
    ] = 0,
    step: Step = None,
    url: Url = "",
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    given = _given(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    with reported_errors(json=json, stopped="stopped") as output:
        if environment:
            if messages is not None or stop:
                raise ConfigError("--environment plays a task: give --task, --prompt or --held-out alone")
            _play(output, where, url, lambda of: {"task_json": task_of(of, prompt, task, held_out), **given}, step)
            return
        if task:
            raise ConfigError("--task is a task of an environment: give --environment too")
        asked = {"messages": _messages(prompt, messages), **_PLAIN, "stop": stop or [], **given}
        with _answering(where, url, token_file, step) as (answer, client):
            if output.json and client is not None:
                output.result(json_line(client.post(PATH, asked, ANSWER_S)))
            else:
                _said(answer(asked), output)


def chat(
    where: RunOrModel = None,
    system: Annotated[str, typer.Option("--system", help="System message before the conversation.")] = "",
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    stop: Stop = None,
    seed: Seed = None,
    step: Step = None,
    url: Url = "",
    token_file: TokenFile = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object an answer.")] = False,
) -> None:
    given = _given(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    messages = [{"role": "system", "content": system}] if system else []
    asked, first = {**_PLAIN, "stop": stop or [], **given, "messages": messages}, len(messages) + 1
    if is_terminal := sys.stdin.isatty():
        import readline  # noqa: F401 `input` edits its line with it.
    with (
        reported_errors(json=json) as output,
        _answering(where, url, token_file, step) as (answer, _),
        suppress(EOFError, KeyboardInterrupt),
    ):
        while True:
            if not (line := input("> " if is_terminal else "")).strip():
                continue
            messages.append({"role": "user", "content": line})
            try:
                text = _said(answer(asked), output)
            except TransientError as error:
                if not is_terminal:
                    raise
                output.complain(f"{error}; say it again")
                messages.pop()
                continue
            except ConfigError as error:
                # No room for all of it, or no chat template: the last message may be answered alone.
                if len(messages) == first:
                    raise
                output.complain(f"{error}; the conversation begins again here")
                del messages[first - 1 : -1]
                text = _said(answer(asked), output)
            messages.append({"role": "assistant", "content": text})


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


def _given(**options: object) -> _Request:
    return {key: value for key, value in options.items() if value is not None}


@contextmanager
def _answering(
    where: Path | None, url: str, token_file: Path | None, step: int | None
) -> Iterator[tuple[_Answer, OrchestratorClient | None]]:
    """Who answers: a live run, by its client, else a checkpoint or a model's folder. Raises ConfigError."""
    if step is not None and (url or where is None or is_model(where)):
        raise ConfigError("--step needs the run directory that holds the checkpoint")
    if where is not None and not url and (step is not None or is_model(where) or not is_alive(where)):
        with model_answers(where, inherited(), step=step) as answer:
            yield answer, None
        return
    client = find_client(where, url, token_file)
    yield (lambda request: ({"text": text} for text in stream_answer(client, request))), client


def _said(pieces: Iterable[dict[str, Any]], output: Output) -> str:
    """Writes an answer as it comes, and a line end; with `--json` once it is whole. Returns its text."""
    text, last = "", dict[str, Any]()
    for last in pieces:
        text += last["text"]
        if not output.json:
            sys.stdout.write(printable(last["text"]))
            sys.stdout.flush()
    output.result(json_line({**last, "text": text}) if output.json else "")
    return text


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
