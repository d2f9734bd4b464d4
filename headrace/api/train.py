"""`train`: starts `headrace train` from Python code, with a run.toml or with what it writes one of."""

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.api.run import Run
from headrace.config.layers import Setting, nest
from headrace.config.resolve import resolve
from headrace.config.toml import to_toml
from headrace.wire.errors import ConfigError
from headrace.wire.process.environment import inherited
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths

_FIRST = "# Written by train() in Python; "
_ROWS = (".rows.parquet", ".rows.jsonl")


def train(
    config: str | os.PathLike[str] | None = None,
    settings: Mapping[str, object] | None = None,
    *,
    model: str | os.PathLike[str] | None = None,
    dataset: str | os.PathLike[str] | Iterable[Mapping[str, object]] | None = None,
    reward_funcs: str | Callable[..., object] | Sequence[str | Callable[..., object]] = (),
    reward_weights: Sequence[float] | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    wait: bool = True,
    **tables: object,
) -> Run:
    """Starts `headrace train`, repeats what it prints, and returns the run when that has ended.

        train("run.toml", {"run.max_steps": 50})
        train(
            model="Qwen/Qwen2.5-0.5B-Instruct",
            dataset=[{"prompt": "12+30=", "answer": "42"}, {"prompt": "55+11=", "answer": "66"}],
            reward_funcs=[correct],
            run={"id": "sums", "max_steps": 50},
            trainer={"learning_rate": 1e-5},
        )

    The second form writes `sums.toml` into the working directory: `headrace train sums.toml` starts the same run.

    `settings` and `tables`: keys of docs/config.md, as `{"run.max_steps": 50}` or `run={"max_steps": 50}`; they win
    over the other arguments and the config. `model`: a folder, or an id of the Hub. `dataset`: a data file, an id, rows
    or an object with `to_parquet`, such as a `datasets.Dataset`; it is read with `data.preset = "trl"`. `reward_funcs`:
    functions in TRL's form at the top of a file, themselves or as `"rewards.py:correct"`, and names of scorers;
    `reward_weights` are 1 by default. `run_dir`: default `runs/RUN_ID`;
    `resume` continues the run there. `wait=False` returns at once, and the run outlives this process; otherwise an
    interrupt stops it after its step, with a checkpoint.

    Raises ConfigError for what the command line refuses, with its words, and RunFailedError if the run fails.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name.startswith("headrace."):
        raise ConfigError('train() in the file of its reward_funcs: call it below `if __name__ == "__main__":`')
    asked = {key: value for key, value in _dotted({**(settings or {}), **tables}) if value is not None}
    given: dict[str, object] = json.loads(_as_json(asked, "settings"))
    if model is not None:
        given = {"model.path": os.fspath(model)} | given
    if model is None and dataset is None and not reward_funcs and reward_weights is None:
        if config is None and not (resume and run_dir):
            raise ConfigError("give a config, or model, dataset and reward_funcs, or run_dir and resume=True")
        file = Path(config or RunPaths(Path(run_dir or "")).run_toml)
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}
        arguments = [f"--{key}={text}" for key, text in texts.items()]
    elif config is None:
        file, arguments = written_config(given, dataset, scorer_tables(reward_funcs, reward_weights)), []
    else:
        raise ConfigError("a config has its model, data and rewards: set model.path, data.path or reward.scorers")
    resolved = resolve(file, arguments=arguments, environment=inherited())
    folder = Path(run_dir or Path("runs", resolved.config.run.id)).resolve()
    run = Run(folder, "train", str(file), *arguments, f"--run-dir={folder}", *(["--resume"] if resume else []))
    try:
        return run.wait() if wait else run
    except KeyboardInterrupt:
        run.stop()
        raise


def _dotted(tables: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def written_config(settings: Mapping[str, object], dataset: Any, scorers: Mapping[str, object]) -> Path:
    """Writes RUN_ID.toml into the working directory, beside it rows that are in no file; returns its path.

    Raises ConfigError instead of replacing a file that `train` has not written.
    """
    name = Path(str(settings.get("run.id", "run"))).name
    file = Path(f"{name}.toml")
    is_ours = file.is_file() and file.read_text(encoding="utf-8").startswith(_FIRST)
    there = (one for one in (file, *(Path(name + suffix) for suffix in _ROWS)) if one.exists())
    if not is_ours and (other := next(there, None)):
        raise ConfigError(
            f"{other} exists, and train() has not written {file}: remove it, give another run.id, or pass it as config "
            "or dataset"
        )
    data = {} if dataset is None else {"data.path": _data(dataset, name), "data.preset": "trl"}
    given = {**data, **scorers, **settings}
    layer = {tuple(key.split(".")): Setting(value, "", Path()) for key, value in given.items()}
    text = f"{_FIRST}`headrace train {file}` starts the same run.\n{to_toml(nest(layer))}"
    atomic.write_text(file, text, durable=False)
    sys.stdout.write(f"config: {file.resolve()}\n")
    return file


def _data(dataset: Any, name: str) -> str:
    """The path or id of the data; parquet keeps the types of columns."""
    if isinstance(dataset, str | os.PathLike):
        return os.fspath(dataset)
    parquet, lines = (name + suffix for suffix in _ROWS)
    if hasattr(dataset, "to_parquet"):
        dataset.to_parquet(parquet)
        return parquet
    rows = (_as_json(row, f"row {number} of the dataset") for number, row in enumerate(dataset))
    atomic.write_text(Path(lines), "".join(row + "\n" for row in rows), durable=False)
    return lines


def _as_json(value: object, what: str) -> str:
    """A path is text, a number of numpy a number. Raises ConfigError for values of other kinds."""
    try:
        return json.dumps(value, default=lambda one: one.item() if hasattr(one, "item") else os.fspath(one))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what}: {error}") from None


def scorer_tables(functions: Any, weights: Sequence[float] | None) -> dict[str, object]:
    """`reward.scorers`, and `reward.path` if some are functions; empty for none. Raises ConfigError."""
    many = [functions] if isinstance(functions, str) or callable(functions) else functions
    found = [_reference(one) for one in many]
    weights = [1.0] * len(found) if weights is None else weights
    if len(weights) != len(found):
        raise ConfigError(f"{len(weights)} reward_weights for {len(found)} reward_funcs: give each one")
    folders = sorted({folder for _, folder in found if folder is not None})
    if len(folders) > 1:
        raise ConfigError(f"reward_funcs are in {folders[0]} and {folders[1]}: put their files into one folder")
    scorers = [{"name": name, "weight": weight} for (name, _), weight in zip(found, weights, strict=True)]
    tables: dict[str, object] = {"reward.scorers": scorers} if scorers else {}
    return tables | {"reward.path": os.path.relpath(folders[0])} if folders else tables


def _reference(function: Any) -> tuple[str, Path | None]:
    """How the reward service names a function, and the folder from which it imports its module."""
    if isinstance(function, str):
        file, _, name = function.rpartition(":")
        path = Path(file).resolve()
        return (f"trl:{path.stem}:{name}", path.parent) if path.suffix == ".py" else (function, None)
    name, module = getattr(function, "__qualname__", ""), sys.modules.get(getattr(function, "__module__", None) or "")
    code = getattr(inspect.unwrap(function), "__code__", None)
    if getattr(module, name, None) is not function or code is None or not Path(code.co_filename).is_file():
        raise ConfigError(
            f"reward_funcs: {name or function!r} is not at the top of a file that the reward service can import. In a "
            "notebook begin its cell with the line `%%writefile rewards.py`, and give "
            f'reward_funcs=["rewards.py:{name if name.isidentifier() else "NAME"}"]'
        )
    path, spec = Path(str(getattr(module, "__file__", ""))).resolve(), getattr(module, "__spec__", None)
    dotted = path.stem if spec is None else str(spec.name)
    return f"trl:{dotted}:{name}", path.parents[dotted.count(".") + (path.stem == "__init__")]
