"""What an export writes: only a folder of such entries, and of no others, is replaced by another export.

Imports no torch: `headrace export` refuses a folder of the user's before it starts a process.
"""

import re
from pathlib import Path

from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.model_files import MODEL_CONFIG, TOKENIZER_FILES, WEIGHTS_INDEX

ADAPTER, README = "adapter", "README.md"
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
ADAPTER_ONLY_TITLE = "# An adapter, and no model\n"
"""First line of the README of an export without a model."""
_FILES = frozenset({MODEL_CONFIG, "generation_config.json", WEIGHTS_INDEX, *TOKENIZER_FILES})
_SHARD = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")


def check_target(target: Path, *, run_dir: Path, sources: tuple[Path, ...]) -> None:
    """Raises ConfigError if an export to `target` would remove anything but an earlier export.

    `sources`: folders of models that the run reads. Inside the run directory only `exports/NAME` may be written.
    """
    place, run = target.resolve(), run_dir.resolve()
    exports = RunPaths(run).exports
    if _overlap(place, run) and exports not in place.parents:
        raise ConfigError(
            f"{target}: an export there would replace files of the run directory {run_dir}: choose a folder outside of "
            f"it with --out, or one below {RunPaths(run_dir).exports}"
        )
    for source in sources:
        if _overlap(place, source.resolve()):
            raise ConfigError(
                f"{target}: an export there would replace files of {source}, the model that the run begins with: "
                "choose another folder with --out"
            )
    foreign = foreign_entry(target)
    if foreign:
        raise ConfigError(
            f"{target} contains files that are not an export's ({foreign}), and an export replaces the whole folder: "
            "choose a new folder with --out"
        )


def foreign_entry(folder: Path) -> str:
    """The first entry of the folder, by name, that no export writes; empty if there is none, or no folder yet.

    Raises ConfigError for a file, or a folder that cannot be read.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: choose a new folder with --out")
    try:
        entries = sorted(folder.iterdir()) if folder.exists() else []
        return next((_shown(path) for path in entries if not _is_written(path)), "")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read ({error.strerror}): choose a new folder with --out") from error


def _is_written(path: Path) -> bool:
    """A link is none: the cache of the Hub has links with a model's names."""
    if path.is_symlink():
        return False
    if path.name == ADAPTER and path.is_dir():
        return all(one.name in ADAPTER_FILES and _is_file(one) for one in path.iterdir())
    if not path.is_file():
        return False
    if path.name == README:
        return path.read_bytes().startswith(ADAPTER_ONLY_TITLE.encode())
    return path.name in _FILES or _SHARD.fullmatch(path.name) is not None


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _shown(path: Path) -> str:
    return f"{path.name}/" if path.is_dir() and not path.is_symlink() else path.name


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
