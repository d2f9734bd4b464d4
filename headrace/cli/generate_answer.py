"""Answers of the policy: through a live run's orchestrator, or from a checkpoint or a model's folder."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from pydantic import ValidationError

from headrace.cli.export import export_model
from headrace.config.resolve import kept_settings
from headrace.data.render import stop_token_ids
from headrace.operate.client import OrchestratorClient, read_answer
from headrace.run.child import talker
from headrace.services.rollout.chat.settings import FolderSettings
from headrace.services.rollout.settings import RolloutTable
from headrace.wire.config.kept import kept_tables
from headrace.wire.config.problems import first_problem
from headrace.wire.config.settings import ModelTable, RunTable
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.rendering.tokenizers import load_tokenizer
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


@contextmanager
def model_answers(
    where: Path, environment: Mapping[str, str], *, step: int | None = None
) -> Iterator[Callable[[Mapping[str, object]], Iterator[dict[str, Any]]]]:
    """Answers requests with a checkpoint of a run, or a model's folder, on the torch engine in a process of its own.

    An answer is objects with a `text`; the last has `finish_reason`, `usage` and `version` (a step). Raises ConfigError
    for a model that the engine cannot decode, and a request that it refuses; ChildFailedError.
    """
    with checkpoint_tables(where, environment, step) as (_, version, (run, model, rollout)):
        stops = _kept_stops(where) or stop_token_ids(model.path, load_tokenizer(model.path))
        fixed = {"stop_token_ids": [*stops], "deadline_s": ANSWER_S, "wait_s": ANSWER_S}
        settings = FolderSettings(run=run, model=model, rollout=rollout, version=version)
        with talker("headrace.services.rollout", "--chat", settings=settings, environment=environment) as engine:
            objects = engine.objects("the answer", ANSWER_S)

            def answer(request: Mapping[str, object]) -> Iterator[dict[str, Any]]:
                given = {key: value for key, value in request.items() if key != "messages"}
                engine.say(json.dumps({**given, **fixed, "messages_json": json.dumps(request["messages"])}))
                for one in objects:
                    if "error" in one:
                        raise ConfigError(one["error"])
                    yield one
                    if "finish_reason" in one:
                        return

            yield answer


def is_model(where: Path) -> bool:
    """Whether it is a model's folder, and no run directory."""
    return (where / "config.json").is_file()


@contextmanager
def checkpoint_tables(
    where: Path, environment: Mapping[str, str], step: int | None
) -> Iterator[tuple[Path, int, tuple[RunTable, ModelTable, RolloutTable]]]:
    """A temporary folder with a checkpoint's model, its step, and the tables of an engine that decodes a row with it.

    Of a model's folder, step 0 and that folder's tables. Raises as `model_answers` does.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        if is_model(where):
            yield Path(folder), 0, (RunTable(), ModelTable(path=where.resolve()), RolloutTable(max_rows=1))
            return
        run, model, rollout = _engine_tables(where)
        if run.stage == "reward_model":
            raise ConfigError(f"{where} is a run of the stage reward_model: its model gives scores, not answers")
        exported = export_model(where, environment, step=step, out=Path(folder) / "model")
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


def _kept_stops(run_dir: Path) -> tuple[int, ...]:
    """Stop tokens of the RL training; empty for a stage on given examples."""
    try:
        return tuple(int(token) for token in kept_settings(run_dir, "orchestrator")["stop_token_ids"])
    except (ConfigError, ValueError, KeyError):
        return ()
