"""From what a user wrote to what a run uses: every value of a config that changes after it was read changes here.

`resolve` knows the sources alone. It applies these rules, in this order:

1. `_at_home`: in the config of a run directory that was moved or copied, a path below its old place is one below its
   place now, so that the run can be resumed there. Keys that older builds wrote there are left out.
2. `_with_taskset`: `data.environment` gives `environment.name` and, for a folder, `environment.path`.
3. `_absolute`: a relative path starts at the folder of the file that gives it, or at the working directory, since the
   services have other ones.

`settle` needs the run directory as well, which `run.id` may name, and what the first start chose in it:

4. `_with_dtype`: `model.dtype = "auto"` is bfloat16 on a GPU and else float32; a resumed run keeps its own.
5. `_with_stale`: a `run.stale` that is not given is `mask` for episodes; a resumed run keeps its own.
6. `_with_compile`: `trainer.compile = "auto"` is true on a GPU where layers can be compiled and nothing asks for equal
   bits; a resumed run keeps its own.
7. `_with_checkpoint_steps`: with `rollout.deterministic`, a `trainer.checkpoint_every` that is not given is 10 steps.
8. `_with_head_dim`: the heads of a made model are wide enough for the kernels of SGLang on a GPU.
9. `_with_made_path`: `model.path` of a made model is in the run directory.

Two more wait for what is known later still:

10. `with_hub_model`: the id of a model on the Hub becomes its folder and its commit, once it is downloaded.
11. `without_password`: the broker's password is left out of the files that `headrace prepare` writes.

What a single process reads otherwise (ports, the broker's address, its first GPU, the base model of QLoRA's engines) is
set where its settings are cut out of the config: `headrace.config.services`. An argument's text is read by the type of
its key: `headrace.config.errors`.
"""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from headrace.config.errors import validate
from headrace.config.layers import (
    Layer,
    merge,
    nearest,
    place_of,
    read_arguments,
    read_environment,
    read_file,
    read_placement,
    shortened,
)
from headrace.config.schema import RunFile
from headrace.config.tables import MakeTable
from headrace.services.environment.settings import VERIFIERS
from headrace.wire.config.kept import kept_tables
from headrace.wire.contracts.reasons import StalePolicy
from headrace.wire.errors import ConfigError
from headrace.wire.host.compiler import compiler_lacks
from headrace.wire.host.regular_file import read_regular_text
from headrace.wire.process.environment import inherited
from headrace.wire.process.launcher import NodePlacement
from headrace.wire.rundir.layout import RunPaths

T = TypeVar("T")
DATA_SUFFIXES = (".jsonl", ".json", ".parquet", ".ndjson", ".csv", ".tsv")
CUDA_HEAD_DIM = 64
"""The narrowest head that FlashInfer's kernels support (DISPATCH_HEAD_DIM in its include/flashinfer/utils.cuh)."""
_DTYPE_BEFORE = "float32"
"""Default of `model.dtype` before `auto` existed."""
STALE_BEFORE: StalePolicy = "drop"
"""Value of `run.stale` for run directories that were made before the key existed."""
_CHECKPOINT_STEPS = 10
_GONE = {("trainer", "fail_at")}
"""Keys that older builds wrote with their defaults."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FOLDERS = {("reward", "path"), ("algorithm", "path"), ("environment", "path")}
"""Keys at which "." is a folder; at others it is the same `Path` as the empty one, which means none."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A valid config, and where each of its values was given."""

    config: RunFile
    file: str
    layer: Layer

    def place(self, *keys: str) -> str:
        """Where the value was given: `run.toml:12: [data] path`; for a default just the key."""
        return place_of(self.layer, keys)

    @property
    def to_make(self) -> MakeTable | None:
        """The table of a model that is made for the run; None for a run with a `model.path`."""
        return None if ("model", "path") in self.layer else self.config.model.make

    def changed(self, table: str, **values: object) -> "Resolved":
        """The same with other values in a table, which are not validated again."""
        update = {table: getattr(self.config, table).model_copy(update=values)}
        return replace(self, config=self.config.model_copy(update=update))


def resolve(
    file: Path | None,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    place: NodePlacement | None = None,
) -> Resolved:
    """Returns the resolved config. Raises ConfigError with one line per error, each naming its place."""
    text = str(file) if file else "arguments"
    from_file, lines = read_file(file) if file else ({}, {})
    from_file = _at_home(from_file, file) if file else {}
    around = (read_environment(environment or {}), read_placement(place))
    layer = _with_taskset(merge([from_file, *around, read_arguments(arguments)]))
    resolved = Resolved(_absolute(validate(layer, lines, text), layer), text, layer)
    if place:
        place.check(resolved.config.trainer.nodes)
    return resolved


def settle(resolved: Resolved, run_dir: Path | None = None, *, goes_on: bool = False) -> Resolved:
    """Settles what `resolve` leaves open, or restores it for a resumed run; None: for no run directory, only to look.

    `goes_on`: the run directory holds a run. Raises ConfigError if SGLang on a GPU cannot run the given head width.
    """
    kept = _kept(run_dir) if goes_on and run_dir else None
    resolved = _with_compile(_with_stale(_with_dtype(resolved, kept), kept), kept)
    resolved = _with_checkpoint_steps(resolved)
    if not goes_on:
        resolved = _with_head_dim(resolved)
    return _with_made_path(resolved, run_dir) if run_dir else resolved


def _kept(run_dir: Path) -> dict[str, Any]:
    """The tables that the first start wrote; none if they cannot be read, which `check_resumable` then reports."""
    with contextlib.suppress(ConfigError):
        return kept_tables(run_dir)
    return {}


def at_home(value: T, run_dir: Path) -> T:
    """A value that a run directory keeps, such as a table: each path below its old place is one below `run_dir`.

    Only where it exists there: another path stays, and an error names it.
    """
    was, here = _recorded(run_dir), run_dir.resolve()
    moved: T = _moved(value, was, here) if was and was != here else value
    return moved


def kept_settings(run_dir: Path, process: str) -> dict[str, Any]:
    """What the last start wrote as settings of a process, with paths as `at_home` reads them. Raises ConfigError."""
    file = RunPaths(run_dir).settings(process)
    try:
        found: dict[str, Any] = json.loads(read_regular_text(file))
        if not isinstance(found, dict):
            raise ValueError("it holds no settings")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{run_dir} is not a run directory: {file}: {error}") from None
    return at_home(found, run_dir)


def _at_home(layer: Layer, file: Path) -> Layer:
    run_dir = file.resolve().parent.parent
    if RunPaths(run_dir).run_toml != file.resolve():
        return layer
    values = at_home({keys: setting.value for keys, setting in layer.items()}, run_dir)
    return {keys: replace(setting, value=values[keys]) for keys, setting in layer.items() if keys not in _GONE}


def _recorded(run_dir: Path) -> Path | None:
    """The place of the run directory as its last start recorded it, which is absolute; None if there is no record."""
    for name in ("trainer", "orchestrator"):
        try:
            found = json.loads(read_regular_text(RunPaths(run_dir).settings(name)))
        except (OSError, ValueError, RecursionError):
            continue
        place = found.get("run_dir") if isinstance(found, dict) else None
        if isinstance(place, str) and place.startswith("/") and len(Path(place).parts) > 1:
            return Path(place)
    return None


def _moved(value: Any, was: Path, here: Path) -> Any:
    if isinstance(value, dict):
        return {key: _moved(inner, was, here) for key, inner in value.items()}
    if isinstance(value, list):
        return [_moved(inner, was, here) for inner in value]
    if isinstance(value, str) and value.startswith(f"{was}/"):
        place = here / value[len(f"{was}/") :]
        return str(place) if place.exists() else value
    return value


def _with_taskset(layer: Layer) -> Layer:
    """A folder is a module of the folder above it."""
    keys = ("data", "environment")
    given = layer.get(keys)
    if given is None or not isinstance(given.value, str) or not given.value:
        return layer
    folder = _joined(layer, keys, Path(given.value))
    name = folder.name if folder.is_dir() else given.value
    added: Layer = {("environment", "name"): replace(given, value=f"{VERIFIERS}{name}", text=None)}
    if folder.is_dir():
        added["environment", "path"] = replace(given, value=str(folder.parent), text=None)
    return {**added, **layer, keys: replace(given, value=name, text=None)}


def _absolute(config: RunFile, layer: Layer) -> RunFile:
    return RunFile.model_validate(_rooted(config.model_dump(mode="python", serialize_as_any=True), (), layer))


def _rooted(value: Any, keys: tuple[str, ...], layer: Layer) -> Any:
    """A value of any kind with its paths made absolute; the id of a model or dataset of the Hub stays."""
    if isinstance(value, dict):
        return {key: _rooted(inner, (*keys, str(key)), layer) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(inner if isinstance(inner, str) else _rooted(inner, keys, layer) for inner in value)
    if isinstance(value, Path) and (value.parts or keys in _FOLDERS):
        joined = _joined(layer, keys, value)
        is_hub_id = keys == ("model", "path") and _HUB_ID.fullmatch(value.as_posix()) and not joined.exists()
        return value if is_hub_id else joined
    if isinstance(value, str) and value and _is_path(value, keys, layer):
        return str(_joined(layer, keys, Path(value)))
    return value


def _is_path(text: str, keys: tuple[str, ...], layer: Layer) -> bool:
    """Whether a text names a file or folder: a data file, or an option of a scorer (`path`, and all in `_file`)."""
    if keys in {("data", "path"), ("data", "eval_path"), ("eval", "path")}:
        looks_like_file = text.endswith(DATA_SUFFIXES) or text.startswith((".", "/", "~"))
        return looks_like_file or _joined(layer, keys, Path(text)).exists()
    is_option = keys[0] == "reward" and keys[-2] == "options"
    return is_option and (keys[-1] == "path" or keys[-1].endswith("_file"))


def _joined(layer: Layer, keys: tuple[str, ...], path: Path) -> Path:
    """The absolute path. Raises ConfigError for one that no system call takes."""
    try:
        joined = Path((nearest(layer, keys).base / path.expanduser()).as_posix()).resolve()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            joined.stat()
        return joined
    except RuntimeError:
        why = "no user of this machine has that name: write out the folder"
    except ValueError:
        why = "it holds a NUL character: remove that"
    except OSError as error:
        why = f"{error.strerror}: give another path"
    raise ConfigError(f"{place_of(layer, keys)}: {shortened(str(path))} is no path: {why}")


def _with_dtype(resolved: Resolved, kept: Mapping[str, Any] | None) -> Resolved:
    if resolved.config.model.dtype != "auto":
        return resolved
    if kept is not None:
        return resolved.changed("model", dtype=kept.get("model", {}).get("dtype", _DTYPE_BEFORE))
    on_gpu = resolved.config.run.device.startswith("cuda")
    return resolved.changed("model", dtype="bfloat16" if on_gpu else "float32")


def _with_compile(resolved: Resolved, kept: Mapping[str, Any] | None) -> Resolved:
    """The processes of a compiled run that is resumed on a GPU may differ in their last bits."""
    config, table = resolved.config, resolved.config.trainer
    if table.compile != "auto":
        return resolved
    if kept is not None:
        compiled = table.cp == 1 and kept.get("trainer", {}).get("compile", False)
        return resolved.changed("trainer", compile=compiled)
    # Not where no compiled run was seen: adapters change the layers between passes, ZeRO 3 gathers and context
    # parallelism exchanges within them, and TRPO takes the gradient of a gradient.
    unseen = config.model.lora.rank > 0 or config.algorithm.policy_loss == "trpo"
    unseen = unseen or (table.backend == "deepspeed" and table.zero_stage == 3) or table.cp > 1
    can = config.run.device.startswith("cuda") and not unseen and not compiler_lacks(inherited())
    return resolved.changed("trainer", compile=can and not config.rollout.deterministic)


def _with_stale(resolved: Resolved, kept: Mapping[str, Any] | None) -> Resolved:
    """A run from before `run.stale` existed keeps the old policy."""
    plays = resolved.config.environment.on
    if ("run", "stale") in resolved.layer:
        return resolved
    if kept is None:
        # Episodes last: `drop` would filter them by length, and `wait` makes all wait for the longest.
        return resolved.changed("run", stale="mask") if plays else resolved
    if "stale" not in kept.get("run", {}):
        return resolved.changed("run", stale=STALE_BEFORE)
    # What the first start has chosen is in no file of the user's: `prepare` reads that at each start.
    return resolved.changed("run", stale=kept["run"]["stale"]) if plays else resolved


def _with_checkpoint_steps(resolved: Resolved) -> Resolved:
    """Where a run is to repeat bit by bit, so do the steps of its checkpoints."""
    if ("trainer", "checkpoint_every") in resolved.layer or not resolved.config.rollout.deterministic:
        return resolved
    return resolved.changed("trainer", checkpoint_every=_CHECKPOINT_STEPS)


def _with_head_dim(resolved: Resolved) -> Resolved:
    """Raises ConfigError if a narrower width is given."""
    table, keys = resolved.config.model.make, ("model", "make", "head_dim")
    if table is None or not resolved.config.serves_on_cuda or table.head_dim >= CUDA_HEAD_DIM:
        return resolved
    if keys in resolved.layer:
        raise ConfigError(
            f"{resolved.place(*keys)}: {table.head_dim}, but SGLang's attention on a GPU needs {CUDA_HEAD_DIM} or more"
        )
    return resolved.changed("model", make=table.model_copy(update={"head_dim": CUDA_HEAD_DIM}))


def _with_made_path(resolved: Resolved, run_dir: Path) -> Resolved:
    return resolved.changed("model", path=RunPaths(run_dir).model) if resolved.to_make else resolved


def with_hub_model(resolved: Resolved, name: str, commit: str, folder: Path) -> Resolved:
    """The config with a model of the Hub that has been downloaded (`headrace.model.hub`)."""
    return resolved.changed("model", path=folder, hub=name, revision=commit)


def without_password(resolved: Resolved) -> RunFile:
    """The config with the user's name alone in `broker.url`: services take the whole URL from their environment."""
    parts = urlsplit(resolved.config.broker.url)
    user, at, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    url = urlunsplit(parts._replace(netloc=f"{name}@{host}" if name else host))
    return resolved.changed("broker", url=url).config if at else resolved.config


def resolved_tables(place: Path) -> dict[str, object]:
    """All tables of a `run.toml`, defaults included; for a run directory the tables that it was run with."""
    if place.is_dir():
        return _as_given(kept_tables(place))
    return settle(resolve(place)).config.model_dump(mode="json", serialize_as_any=True)


def _as_given(tables: dict[str, Any]) -> dict[str, object]:
    """Replaces the local folder of a Hub model by its id, which is the same on every machine."""
    model = tables.get("model", {})
    return tables | {"model": model | {"path": model["hub"], "hub": ""}} if model.get("hub") else tables
