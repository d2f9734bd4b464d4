"""Plays one episode of a run's environment: with the replicas of a live run, or with the checkpoint of an ended one."""

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue, TypeAdapter, ValidationError

from headrace.cli.generate_answer import checkpoint_tables
from headrace.config.resolve import kept_settings
from headrace.run.child import run_child, talker
from headrace.services.environment.settings import PlayOnceSettings
from headrace.services.rollout.chat.settings import FolderSettings
from headrace.wire.config.problems import first_problem
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rundir import prompts
from headrace.wire.rundir.layout import RunPaths

_START_S = 600.0
_BESIDE_S = 120.0
"""Beyond the episode's own deadline: for imports, and for the environment's code."""
_SAMPLED = ("max_tokens", "temperature", "top_k", "top_p")
_TASK = TypeAdapter(dict[str, JsonValue])
Played = dict[str, JsonValue]


def task_of(run_dir: Path, prompt: str, task: str, held_out: int) -> str:
    """The task as JSON: `task`, or `{"prompt": prompt}`, or the task of a held-out row. Raises ConfigError."""
    if task:
        try:
            return json.dumps(_TASK.validate_json(task))
        except ValidationError:
            raise ConfigError(f"--task {task}: not a JSON object") from None
    if prompt:
        return json.dumps({"prompt": prompt})
    try:
        rows = prompts.read(RunPaths(run_dir).eval_prompts, "environment").to_pylist()
        return json.dumps(json.loads(rows[held_out]["environment"])["task"])
    except (DataError, IndexError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{run_dir} has no held-out task {held_out} ({error}): give --task '{{...}}' or --prompt TEXT"
        ) from None


def play_episode(
    run_dir: Path, play: Mapping[str, object], environment: Mapping[str, str], *, is_live: bool, step: int | None
) -> Played:
    """Plays it; `play` has the keys of `[play]`. Raises ConfigError for a run without an environment."""
    settings = _settings(run_dir, play)
    if is_live:
        return _played(settings, environment)
    with checkpoint_tables(run_dir, environment, step) as (folder, version, (run, model, rollout)):
        engine = FolderSettings(run=run, run_dir=folder, model=model, rollout=rollout, version=version)
        with talker("headrace.services.rollout", "--turns", settings=engine, environment=environment) as sampler:
            port = next(one["port"] for one in sampler.objects("the engine's start", _START_S) if "port" in one)
            here = settings.play.model_copy(update={"address": f"127.0.0.1:{port}", "version": engine.version})
            changed = {"play": here, "model": engine.model, "tokens": RunPaths(engine.run_dir).tokens}
            return _played(settings.model_copy(update=changed), environment)


def _settings(run_dir: Path, play: Mapping[str, object]) -> PlayOnceSettings:
    # `headrace prepare` writes one file for all workers.
    names = ("environment-0", "environment")
    name = next((one for one in names if RunPaths(run_dir).settings(one).is_file()), None)
    if name is None:
        raise ConfigError(f"{run_dir} has no environment to play: {RunPaths(run_dir).settings(names[0])} is missing")
    of_run = kept_settings(run_dir, "orchestrator")
    table = {**_sampling(of_run), **play}
    if play.get("temperature") == 0:  # A program may still ask for the temperature that it was trained with.
        table = {**table, "temperature": _sampling(of_run).get("temperature", 1.0), "greedy": True}
    try:
        kept = {**kept_settings(run_dir, name), "run_dir": str(run_dir.resolve())}
        return PlayOnceSettings.model_validate({**kept, "play": table})
    except ValidationError as error:
        raise ConfigError(f"{RunPaths(run_dir).settings(name)}: {first_problem(error)}") from None


def _sampling(of_run: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Keys of `[play]` as the run samples."""
    table = of_run.get("sampling")
    found = {name: table[name] for name in _SAMPLED if name in table} if isinstance(table, dict) else {}
    return {**found, "stop_token_ids": of_run.get("stop_token_ids") or []}


def _played(settings: PlayOnceSettings, environment: Mapping[str, str]) -> Played:
    words = ("the episode", "headrace.services.environment", "--play")
    seconds = settings.environment.episode_s + settings.environment.start_s + _BESIDE_S
    return run_child(*words, settings=settings, environment=environment, timeout_s=seconds)
