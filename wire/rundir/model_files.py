"""The files of a model folder that a run depends on, and their digests at its first start: `config/model_files.json`.

Prompts are tokenized once, so a resumed run goes on with the same tokenizer. Its weights are those of a checkpoint, but
adapters and a frozen reference need those of the folder again. Small files are hashed whole. Files of weights above
`WHOLE_BYTES` are sampled: their size and `SAMPLES` blocks at even distances, among them the first, with the header, and
the last; a sample takes milliseconds where the whole takes minutes.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rundir.file_digests import sha256_of
from headrace.wire.rundir.layout import RunPaths

MODEL_CONFIG = "config.json"
WEIGHTS_INDEX = "model.safetensors.index.json"
TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
"""What belongs to a model beside config and weights, and is copied into an export."""
WHOLE_BYTES = 64 << 20
SAMPLES = 64
_BLOCK = 64 << 10


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Digests of one model folder: name -> hex sha256."""

    files: Mapping[str, str]
    """`config.json` and the tokenizer's files, as far as they exist; whole."""
    weights: Mapping[str, str]
    """The files of weights, sampled if they are large."""

    @property
    def tokenizer(self) -> dict[str, str]:
        """Those of the tokenizer."""
        return {name: digest for name, digest in self.files.items() if name != MODEL_CONFIG}


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copies the files of a model's tokenizer that exist. Raises OSError."""
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def read_model_files(folder: Path) -> ModelFiles:
    """The digests of a folder. Raises ConfigError naming the folder if a file cannot be read."""
    names = (MODEL_CONFIG, *TOKENIZER_FILES)
    try:
        return ModelFiles(
            files={name: sha256_of(folder / name) for name in names if (folder / name).is_file()},
            weights={path.name: _sampled(path) for path in _weight_files(folder)},
        )
    except OSError as error:
        raise ConfigError(f"model.path {folder} cannot be read: {error}") from error


def recorded_model(run_dir: Path) -> ModelFiles | None:
    """What the first start of the run found; None for a run without the record. Raises DataError for a damaged one."""
    path = RunPaths(run_dir).model_files
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return ModelFiles(_texts(found["files"]), _texts(found["weights"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read: {error!r}") from error


def as_json(found: ModelFiles) -> str:
    """The record, as `recorded_model` reads it."""
    return json.dumps(asdict(found), indent=1) + "\n"


def check_same_model(folder: Path, run_dir: Path, *, weights: bool) -> bool:
    """Whether the run has a record. Raises ConfigError naming a file of the folder that is not as the record has it.

    `weights`: whether those of the folder are needed again.
    """
    before = recorded_model(run_dir)
    if before is None:
        return False
    now = read_model_files(folder)
    _refuse(folder, run_dir, before.files, now.files)
    if weights:
        _refuse(folder, run_dir, before.weights, now.weights)
    return True


def check_tokenizer(folder: Path, run_dir: Path) -> None:
    """Raises ConfigError naming a tokenizer's file that is gone since the run's first start, or another one now."""
    before = recorded_model(run_dir)
    if before is not None:
        _refuse(folder, run_dir, before.tokenizer, read_model_files(folder).tokenizer)
    elif not folder.is_dir():
        raise ConfigError(f"model.path: {folder} is gone, and the model's tokenizer with it: restore the folder")


def _refuse(folder: Path, run_dir: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    if not changed:
        return
    name = changed[0]
    how = "is gone" if name not in now else "was not there" if name not in before else "has changed"
    more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
    raise ConfigError(
        f"model.path: {folder / name}{more} {how} since the run's first start: restore it, or begin a new run in "
        f"another --run-dir (if the change is intended, remove {RunPaths(run_dir).model_files} and go on)"
    )


class TensorEntry(TypedDict):
    """A tensor in a safetensors file's header."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def indexed_weights(folder: Path) -> dict[str, Path] | None:
    """Tensor -> its file, by the folder's index; None without one.

    Raises ConfigError for an index that cannot be read, or that names a file outside of the folder: a downloaded model
    would choose among this user's files.
    """
    index = folder / WEIGHTS_INDEX
    if not index.is_file():
        return None
    try:
        found: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        odd = [file for file in found.values() if Path(file).is_absolute() or ".." in Path(file).parts]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{index}: cannot be read: {error!r}") from error
    if odd or not found:
        why = f"{odd[0]} is outside of the folder: correct the name" if odd else "no file is named"
        raise ConfigError(f'{index}: "weight_map": {why}')
    return {name: folder / file for name, file in found.items()}


def read_header(path: Path) -> tuple[dict[str, TensorEntry], int]:
    """Each tensor of a safetensors file, and where the data begin that its offsets count from.

    The format: eight bytes of length, a JSON header, and the bytes of each tensor. Raises OSError and ValueError.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise ValueError("it is shorter than its header")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    header.pop("__metadata__", None)
    return header, 8 + length


def _weight_files(folder: Path) -> Iterator[Path]:
    """The safetensors files that are loaded, with their index."""
    index = folder / WEIGHTS_INDEX
    if index.is_file():
        yield index
    yield from sorted(path for path in folder.glob("*.safetensors") if path.is_file())


def _sampled(path: Path) -> str:
    size = path.stat().st_size
    if size <= WHOLE_BYTES:
        return sha256_of(path)
    state = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for place in range(SAMPLES):
            file.seek((size - _BLOCK) * place // (SAMPLES - 1))
            state.update(file.read(_BLOCK))
    return f"sampled:{state.hexdigest()}"


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise TypeError("digests are texts")
    return value
