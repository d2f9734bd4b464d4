"""What `pins.toml` asks of an environment for GPUs. Standard library only, Python 3.11 or newer.

    PYTHON pins.py check                      has the environment of this interpreter the torch and NCCL pinned?
    PYTHON pins.py constraints FILE           FILE (constraints.txt) with them in place of what it pins

Two environments that pass have equal NCCL, so weights go from one to the other by it. `make lock` writes
constraints-gpu.txt, `make gpu` installs it.
"""

import sys
import tomllib
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

PINS = Path(__file__).with_name("pins.toml")
_HEAD = "# Made by `make lock` of constraints.txt and deploy/gpu/pins.toml; `make gpu` installs it.\n"


def wanted(pins: Mapping[str, Any]) -> dict[str, str]:
    """Package -> version: SGLang's torch, and the NCCL of that torch."""
    torch = _pinned(pins["sglang"]["requires"], "torch")
    (wheel,) = (one for one in pins["torch"] if one["version"] == torch)
    return {nccl_name(wheel["requires"]): nccl_of(pins, torch), "torch": torch}


def nccl_of(pins: Mapping[str, Any], torch: str) -> str:
    """The NCCL that a torch of this version brings."""
    (wheel,) = (one for one in pins["torch"] if one["version"] == torch)
    return _pinned(wheel["requires"], nccl_name(wheel["requires"]))


def nccl_name(requires: list[str]) -> str:
    """Name of the package with NCCL for this CUDA, such as `nvidia-nccl-cu13`."""
    return next(line.partition("==")[0] for line in requires if line.startswith("nvidia-nccl-"))


def _pinned(requires: list[str], name: str) -> str:
    return next(line.partition("==")[2] for line in requires if line.partition("==")[0] == name)


def with_pins(constraints: str, pinned: Mapping[str, str]) -> str:
    """The lines of `constraints`, those of `pinned` (package -> version) in place of or between them."""
    lines = [line for line in constraints.splitlines() if line.partition("==")[0] not in pinned]
    lines += [f"{name}=={version}" for name, version in pinned.items()]
    return _HEAD + "".join(f"{line}\n" for line in sorted(lines, key=lambda line: line.partition("==")[0].lower()))


def problems(pinned: Mapping[str, str], version: Callable[[str], str]) -> list[str]:
    """What differs; `version` gives that of an installed package, empty for one that is not."""
    found = {name: version(name) for name in pinned}
    return [
        f"{name} {found[name] or 'is not installed'}, {right} is wanted"
        for name, right in pinned.items()
        if found[name] != right
    ]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _check(pinned: Mapping[str, str]) -> int:
    wrong = problems(pinned, _version)
    if not wrong:
        sys.stdout.write(f"{sys.prefix}: " + ", ".join(f"{name} {right}" for name, right in pinned.items()) + "\n")
        return 0
    sys.stderr.write(f"{sys.prefix}: {'; '.join(wrong)}\n")
    if _version("torch").endswith("+cpu"):
        sys.stderr.write("pip took a build of torch for CPUs: take its index out of PIP_EXTRA_INDEX_URL and pip.conf\n")
    return 1


def main(arguments: list[str]) -> int:
    """The exit status; 1 with what is wrong and the way out."""
    pinned = wanted(tomllib.loads(PINS.read_text(encoding="utf-8")))
    if arguments == ["check"]:
        return _check(pinned)
    verb, file = arguments
    assert verb == "constraints", verb
    sys.stdout.write(with_pins(Path(file).read_text(encoding="utf-8"), pinned))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
