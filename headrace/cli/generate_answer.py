"""Generates one answer of the policy: through a live run's orchestrator, or from the checkpoint of an ended run."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from pydantic import ValidationError

from headrace.cli.export import export_model
from headrace.config.resolve import kept_settings
from headrace.operate.client import OrchestratorClient, read_answer
from headrace.run.child import run_child
from headrace.services.rollout.chat.settings import ChatOnceSettings, ChatOnceTable
from headrace.services.rollout.settings import RolloutTable
from headrace.wire.config.kept import kept_tables
from headrace.wire.config.problems import first_problem
from headrace.wire.config.settings import ModelTable, RunTable
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.rundir.layout import RunPaths

PATH = "/v1/chat/completions"
ANSWER_S = 600.0


def stream_answer(client: OrchestratorClient, request: Mapping[str, object]) -> Iterator[str]:
    """Streams the text of an answer. Raises as `OrchestratorClient.get` does."""
    body = {**request, "stream": True}
    try:
        with client.client(ANSWER_S) as http, http.stream("POST", PATH, json=body) as answer:
            if answer.status_code != httpx.codes.OK:
                answer.read()
                read_answer(client, PATH, answer)
            yield from _texts(client, answer.iter_lines())
    except httpx.HTTPError as error:
        raise TransientError(f"{client.url}{PATH}: {str(error) or type(error).__name__}") from None


def _texts(client: OrchestratorClient, lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        data = line.removeprefix("data: ")
        if data == "[DONE]":
            return
        if data == line:
            continue
        event = json.loads(data)
        if "error" in event:
            raise TransientError(f"{client.url}{PATH}: {event['error']['message']}")
        for choice in event["choices"]:
            yield choice["delta"].get("content") or ""
    raise TransientError(f"{client.url}{PATH}: the answer was cut off")


def answer_from_checkpoint(
    run_dir: Path, request: Mapping[str, Any], environment: Mapping[str, str], *, step: int | None = None
) -> dict[str, Any]:
    """Returns `text`, `finish_reason`, `usage`, `version` (a step) from the torch engine in a process of its own.

    Raises ConfigError for a run whose model the engine cannot decode, ChildFailedError.
    """
    with checkpoint_tables(run_dir, environment, step) as (_, version, (run, model, rollout)):
        table = ChatOnceTable(
            messages_json=json.dumps(request["messages"]),
            version=version,
            stop_token_ids=_stop_token_ids(run_dir),
            deadline_s=ANSWER_S,
            **{key: request[key] for key in ("max_tokens", "temperature", "top_p", "stop", "seed") if key in request},
        )
        settings = ChatOnceSettings(run=run, model=model, rollout=rollout, chat=table)
        words = ("the answer", "headrace.services.rollout", "--chat")
        return run_child(*words, settings=settings, environment=environment, timeout_s=ANSWER_S)


@contextmanager
def checkpoint_tables(
    run_dir: Path, environment: Mapping[str, str], step: int | None
) -> Iterator[tuple[Path, int, tuple[RunTable, ModelTable, RolloutTable]]]:
    """A temporary folder with a checkpoint's model, its step, and the tables of an engine that decodes a row with it.

    Raises as `answer_from_checkpoint` does.
    """
    run, model, rollout = _engine_tables(run_dir)
    if run.stage == "reward_model":
        raise ConfigError(f"{run_dir} is a run of the stage reward_model: its model gives scores, not answers")
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        exported = export_model(run_dir, environment, step=step, out=Path(folder) / "model")
        model = ModelTable(path=Path(exported["path"]), dtype=model.dtype, fp32_head=model.fp32_head)
        rollout = RolloutTable(max_rows=1, context_length=rollout.context_length)
        yield Path(folder), int(exported["step"]), (run, model, rollout)


def _engine_tables(run_dir: Path) -> tuple[RunTable, ModelTable, RolloutTable]:
    """Tables of the run's config, as far as decoding a single row needs them."""
    tables, path = kept_tables(run_dir), RunPaths(run_dir).run_toml
    for name in ("run", "model", "rollout"):
        if not isinstance(tables.get(name, None if name == "run" else {}), dict):
            raise ConfigError(f"{run_dir} is not a run directory: {path}: {name} is not a table")
    model = {key: value for key, value in tables.get("model", {}).items() if key in ModelTable.model_fields}
    rollout = {"context_length": tables.get("rollout", {}).get("context_length", 0)}
    try:
        found = RunTable.model_validate(tables.get("run")), ModelTable.model_validate(model), RolloutTable(**rollout)
    except ValidationError as error:
        raise ConfigError(f"{run_dir} is not a run directory: {path}: {first_problem(error)}") from None
    return found


def _stop_token_ids(run_dir: Path) -> tuple[int, ...]:
    """Stop tokens of the RL training; empty for a stage on given examples."""
    try:
        return tuple(int(token) for token in kept_settings(run_dir, "orchestrator")["stop_token_ids"])
    except (ConfigError, ValueError, KeyError):
        return ()
