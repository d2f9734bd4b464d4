"""Places trainer and SGLang servers on the GPUs of this machine when `headrace train` starts both, and counts them."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.config.resolve import Resolved
from headrace.config.schema import RunFile
from headrace.wire.errors import ConfigError

_SMI_S = 15.0
_KFD = Path("/dev/kfd")
"""The device of AMD's driver (ROCm)."""


@dataclass(frozen=True, slots=True)
class Placement:
    """GPUs of trainer and servers, as indices among those visible to processes of this machine."""

    trainer: range
    """GPUs of the ranks on this machine; empty unless `run.device` is `cuda`."""
    first: int
    """First GPU of the first replica's server."""
    each: int
    """GPUs of one server; 0 = none is launched on a GPU."""
    replicas: int

    def replica(self, index: int) -> range:
        """GPUs of one replica's server."""
        return range(self.first + index * self.each, self.first + (index + 1) * self.each)

    @property
    def servers(self) -> range:
        """GPUs of all servers."""
        return range(self.first, self.first + self.replicas * self.each)

    @property
    def needed(self) -> int:
        """Least number of GPUs that the machine must have."""
        return max(self.trainer.stop if self.trainer else 0, self.servers.stop if self.servers else 0)

    def in_words(self) -> str:
        """Formats the GPUs of trainer and servers; empty if none is on a GPU."""
        taken = {"trainer": self.trainer, "SGLang": self.servers}
        return ", ".join(f"{name} on {_words(gpus)}" for name, gpus in taken.items() if gpus)


def placement(config: RunFile) -> Placement:
    """Places a run whose services `headrace train` starts on this machine.

    `rollout.sglang.base_gpu_id = "auto"` is the first GPU after the trainer's. It is the trainer's first if they share
    GPUs: with `trainer.memory_fraction` below 1, or in turns.
    """
    trainer = range(0)
    if config.run.device.startswith("cuda"):
        first = int(config.run.device.partition(":")[2] or 0)
        trainer = range(first, first + config.trainer.ranks // config.trainer.nodes)
    own = config.rollout.sglang
    base = own.base_gpu_id
    if base == "auto":
        shares = config.trainer.memory_fraction < 1 or config.rollout.gpu_sharing == "turns"
        base = trainer.start if shares else trainer.stop
    return Placement(trainer, base, own.tp if config.serves_on_cuda else 0, config.rollout.replicas)


def split(gpus: int, tp: int = 1) -> tuple[int, int]:
    """`trainer.ranks` and `rollout.replicas` of `tp` GPUs each that use all of two or more GPUs.

    The trainer takes the smaller half, since generation takes the larger part of most steps.
    """
    ranks = gpus // 2
    return ranks, (gpus - ranks) // tp


def check_overlap(resolved: Resolved) -> None:
    """Raises ConfigError if trainer and servers share a GPU without shares of its memory that sum to 1 at most."""
    config = resolved.config
    found = placement(config)
    shared = sorted(set(found.trainer) & set(found.servers))
    if not shared or config.rollout.gpu_sharing == "turns":
        return
    engine, trainer = config.rollout.sglang.mem_fraction_static, config.trainer.memory_fraction
    place = resolved.place("rollout", "sglang", "base_gpu_id")
    if trainer == 1 or not engine:
        raise ConfigError(
            f"{place}: {found.in_words()}: on GPU {shared[0]} each would take most of the memory. Give SGLang its own "
            f"(base_gpu_id = {found.trainer.stop}, or leave it out), let them take turns (rollout.gpu_sharing = "
            '"turns"), or give each a share: trainer.memory_fraction and rollout.sglang.mem_fraction_static, such as '
            "0.5 and 0.4"
        )
    if trainer + engine > 1:
        raise ConfigError(
            f"{place}: trainer and SGLang share GPU {shared[0]}, and trainer.memory_fraction = {trainer:g} and "
            f"rollout.sglang.mem_fraction_static = {engine:g} are more than all of its memory"
        )


def check_visible(resolved: Resolved, environment: Mapping[str, str]) -> None:
    """Raises ConfigError if this machine has fewer GPUs than the config needs."""
    found = placement(resolved.config)
    if not found.needed:
        return
    count = visible(environment)
    if count >= found.needed:
        return
    check_any(resolved, environment)
    raise ConfigError(
        f"{resolved.place('run', 'device')}: {found.in_words()}, but this machine has {count}; take fewer "
        "trainer.ranks, rollout.replicas or rollout.sglang.tp, or let trainer and SGLang share (docs/sglang.md)"
    )


def check_any(resolved: Resolved, environment: Mapping[str, str]) -> None:
    """Raises ConfigError if the config needs a GPU and there is none."""
    device = resolved.config.run.device
    if (device.startswith("cuda") or placement(resolved.config).needed) and not visible(environment):
        has = "has GPUs of AMD, which are not supported" if _KFD.exists() else "has no GPU"
        raise ConfigError(
            f"{resolved.place('run', 'device')}: {device!r}, but this machine {has}; run it where there is one of "
            "NVIDIA's, or set run.device to cpu"
        )


def visible(environment: Mapping[str, str]) -> int:
    """Number of GPUs visible in this environment: those listed by the driver, less what CUDA_VISIBLE_DEVICES hides."""
    return shown(_listed(), environment.get("CUDA_VISIBLE_DEVICES"))


def shown(there: int, chosen: str | None) -> int:
    """Number of `there` GPUs that CUDA_VISIBLE_DEVICES = `chosen` shows; None = all. Pure."""
    if chosen is None:
        return there
    names: list[str] = []
    for name in filter(None, (part.strip() for part in chosen.split(","))):
        # CUDA stops at the first that does not exist (CUDA C++ programming guide, environment variables).
        if name.startswith("-") or (name.isdecimal() and int(name) >= there):
            break
        names.append(name)
    # A slice of a GPU has a UUID of its own, and the driver lists it below its GPU.
    return len(names) if any(name.startswith("MIG-") for name in names) else min(there, len(names))


def gpu_rows() -> list[str]:
    """The driver's row for each GPU, such as `NVIDIA H200, 575.1, 143771 MiB`. Raises OSError with its complaint.

    Raises FileNotFoundError without nvidia-smi, and TimeoutExpired if the driver hangs.
    """
    query = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    done = subprocess.run(query, capture_output=True, text=True, timeout=_SMI_S, check=False)
    rows = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode or not rows:
        raise OSError(next(iter((done.stderr or done.stdout).strip().splitlines()), f"status {done.returncode}"))
    return rows


def _listed() -> int:
    try:
        return len(gpu_rows())
    except (OSError, subprocess.TimeoutExpired):
        return len(device_files())


def device_files() -> list[str]:
    """Lists the GPUs' device files: a container may have GPUs and no nvidia-smi."""
    return [name for name in os.listdir("/dev") if name.removeprefix("nvidia").isdecimal() and name != "nvidia"]


def _words(gpus: range) -> str:
    return f"GPU {gpus.start}" if len(gpus) == 1 else f"GPUs {gpus.start}-{gpus.stop - 1}"
