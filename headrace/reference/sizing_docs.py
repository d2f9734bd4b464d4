"""The tables of docs/gpu.md, made of the memory plan."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.doctor.memory_plan import GB, Training, cache_bytes, trainer_gpu, trainer_host
from headrace.doctor.sizes import ModelShape, dense_shape
from headrace.reference.marked import replaced

DOC = Path(__file__).parents[2] / "docs" / "gpu.md"
GPUS = (1, 2, 8, 16)
MEMORIES = (24, 80, 141)
"""GB of a GPU, by its name."""
_SHARE = 0.94
"""Share of it that a plan may fill: allocators leave gaps. Assumed, not measured."""
_HOST = 2000
"""GB of a machine that a plan may fill. Assumed."""
_BESIDE = 8
"""GPUs of one machine, at most."""
MODELS = {
    "0.5 B (Qwen2.5)": dense_shape(
        hidden=896, inner=4864, layers=24, queries=896, keys=128, vocabulary=151936, tied=True, biases=True
    ),
    "1.5 B (Qwen2.5)": dense_shape(
        hidden=1536, inner=8960, layers=28, queries=1536, keys=256, vocabulary=151936, tied=True, biases=True
    ),
    "3 B (Qwen2.5)": dense_shape(
        hidden=2048, inner=11008, layers=36, queries=2048, keys=256, vocabulary=151936, tied=True, biases=True
    ),
    "8 B (Llama 3.1)": dense_shape(
        hidden=4096, inner=14336, layers=32, queries=4096, keys=1024, vocabulary=128256, tied=False
    ),
    "14 B (Qwen2.5)": dense_shape(
        hidden=5120, inner=13824, layers=48, queries=5120, keys=1024, vocabulary=152064, tied=False, biases=True
    ),
    "32 B (Qwen2.5)": dense_shape(
        hidden=5120, inner=27648, layers=64, queries=5120, keys=1024, vocabulary=152064, tied=False, biases=True
    ),
    "70 B (Llama 3.1)": dense_shape(
        hidden=8192, inner=28672, layers=80, queries=8192, keys=1024, vocabulary=128256, tied=False
    ),
}
RECIPES: dict[str, dict[str, Any]] = {
    "full": {},
    "full, c": {"checkpointing": True},
    "full, c, 8-bit": {"checkpointing": True, "optimizer": "adamw_8bit"},
    "full, c, offload": {"checkpointing": True, "cpu_offload": True},
    "LoRA": {"adapter_rank": 16},
    "LoRA, c": {"adapter_rank": 16, "checkpointing": True},
    "QLoRA, c": {"adapter_rank": 16, "checkpointing": True, "quantized": True},
}
"""In the order in which they are tried: the page lists the first that fits."""


def written(page: str) -> str:
    """The page with its tables as they are now. Raises ValueError if it lacks the place of one."""
    page = replaced(page, "trainer sizes", "".join(_trainer()))
    return replaced(page, "engine sizes", "".join(_engines()))


def recipe(shape: ModelShape, gpus: int, memory: int) -> tuple[str, int, int] | None:
    """The first recipe of `RECIPES` that fits, its bytes on rank 0's GPU and on its host; None if none does."""
    for name, changes in RECIPES.items():
        how = replace(
            Training(ranks=gpus, nodes=max(gpus // _BESIDE, 1), backend="single" if gpus == 1 else "fsdp2"), **changes
        )
        if (how.backend == "single" and how.cpu_offload) or (gpus > 1 and how.optimizer == "adamw_8bit"):
            continue
        used, host = trainer_gpu(shape, how).total, trainer_host(shape, how).total
        if used <= _SHARE * memory * GB and host <= _HOST * GB:
            return name, used, host
    return None


def _trainer() -> Iterator[str]:
    for memory in MEMORIES:
        columns = " | ".join(f"{count} GPU" + "s" * (count > 1) for count in GPUS)
        yield f"\n### GPUs of {memory} GB\n\n| model | {columns} |\n"
        yield f"|---|{'---|' * len(GPUS)}\n"
        for name, shape in MODELS.items():
            cells = [_cell(recipe(shape, count, memory)) for count in GPUS]
            yield f"| {name} | {' | '.join(cells)} |\n"


def _cell(found: tuple[str, int, int] | None) -> str:
    if found is None:
        return "—"
    name, gpu, host = found
    return f"{name}: {gpu / GB:.0f} / {host / GB:.0f}"


def _engines() -> Iterator[str]:
    columns = [(memory, tp) for memory in MEMORIES for tp in (1, 4)]
    yield f"| model | {' | '.join(f'{tp} x {memory} GB' for memory, tp in columns)} |\n|---|{'---|' * len(columns)}\n"
    for name, shape in MODELS.items():
        cells = []
        for memory, tp in columns:
            room = 0.85 * memory * GB - 2 * shape.parameters / tp
            tokens = int(room) // cache_bytes(shape, tp, 2) if room > 0 else 0
            cells.append(f"{tokens / 1000:,.0f} k" if tokens >= 4096 else "—")
        yield f"| {name} | {' | '.join(cells)} |\n"
