"""How the ranks of a trainer load a model: each its own shards, or whole models if host memory allows it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from headrace.services.trainer.backends.choice import choose
from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.tensor_files import stored_tensors
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.telemetry.logs import get_logger

_SHARE = 0.5
"""Share of available memory that whole models in float32 may take while they are loaded."""
_CGROUP = Path("/sys/fs/cgroup")
log = get_logger("trainer.load")


def shards_over(settings: TrainerSettings | StageSettings, ranks: Ranks) -> Ranks | None:
    """Returns `ranks` if each reads only its shards of trained models (FSDP2 without 4-bit weights), else None."""
    sharded = ranks.size > 1 and choose(settings.trainer.backend, ranks.size) == "fsdp2"
    return ranks if sharded and settings.model.lora.quantize == "none" else None


@contextmanager
def whole_models(ranks: Ranks, path: Path, *, sharded: bool) -> Iterator[None]:
    """Within it a rank loads a whole model onto its device; one rank of a machine at a time, if memory requires it.

    With `sharded` no whole model is loaded and nothing waits. Every rank must call it.
    """
    if sharded or ranks.size == 1:
        yield
        return
    stored = stored_tensors(sorted(path.glob("*.safetensors")))
    need = ranks.beside * 4 * sum(torch.Size(each.shape).numel() for each in stored.values())
    if not ranks.agree(need > _SHARE * available_bytes()):
        yield
        return
    log.info("load_in_turn", need_bytes=need, reason="whole models of all ranks at once would fill the host's memory")
    with ranks.in_turn("to load the model"):
        yield


def available_bytes() -> int:
    """Memory still available to processes of the host, or of this container."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    free = next(int(words[1]) << 10 for words in lines if words[0] == "MemAvailable:")
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return free
    return min(free, int(limit) - int(used)) if limit.isdecimal() else free
