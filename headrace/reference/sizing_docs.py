"""Writes docs/sizing.md from the memory plan: `python -m headrace.reference.sizing_docs`."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.doctor.memory_plan import GB, Training, cache_bytes, trainer_gpu, trainer_host
from headrace.doctor.sizes import ModelShape, dense_shape

DOC = Path(__file__).parents[2] / "docs" / "sizing.md"
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
_HEAD = f"""# What fits where

For your own config and machine, run `headrace doctor run.toml`: it prints the memory plan from which
`python -m headrace.reference.sizing_docs` writes this page. **These are estimates**: the peaks of four steps of Qwen3
shapes on one H200 (29 to 102 GiB) are met within 3%; several GPUs have not been measured. Tests on a CPU check that
weights, gradients and optimizer are counted exactly, and a layer's activations within 5%; the formulas in
`headrace/doctor/memory_plan.py` estimate the other buffers of a step.

The tables count GPUs of the **trainer** alone; engines need their own ([below](#engines)). They assume
`model.dtype = "bfloat16"` over float32 master weights, AdamW, no critic and no reference copy (which adds 4 bytes a
parameter, spread over the ranks), micro-batches of 8192 tokens (`trainer.micro_batch_tokens`), `single` on one GPU and
`fsdp2` on several, and {_BESIDE} GPUs to a machine. A plan may fill {_SHARE:.0%} of a GPU and {_HOST} GB of a host.

A cell is the first recipe that fits, with the GB of rank 0's GPU and, after the slash, of the host of machine 0:

- *full*: all weights; *c*: with `trainer.gradient_checkpointing`; *8-bit*: `trainer.optimizer = "adamw_8bit"`;
  *offload*: `trainer.cpu_offload`, weights and optimizer in host memory, slow.
- *LoRA*: `model.lora.rank = 16` on all projections; *QLoRA*: its frozen weights in 4 bits
  (`model.lora.quantize = "nf4"`).
- An em dash: none of these fits. A smaller `micro_batch_tokens` may still help if only a few GB are missing.
"""


def as_markdown() -> str:
    """The whole page."""
    return "".join([_HEAD, *_trainer(), *_engines(), _COUNT])


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


def main() -> None:
    """Writes the page."""
    DOC.write_text(as_markdown(), encoding="utf-8")


def _trainer() -> Iterator[str]:
    for memory in MEMORIES:
        columns = " | ".join(f"{count} GPU" + "s" * (count > 1) for count in GPUS)
        yield f"\n## GPUs of {memory} GB\n\n| model | {columns} |\n"
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
    yield (
        "\n## Engines\n\nA replica's GPUs hold the weights in bfloat16 and a cache of keys and values. The table lists "
        "the tokens in\nthe cache of an SGLang server that may use 85% of its GPUs "
        "(`rollout.sglang.mem_fraction_static`), by their number,\n`rollout.sglang.tp`:\n\n"
    )
    columns = [(memory, tp) for memory in MEMORIES for tp in (1, 4)]
    yield f"| model | {' | '.join(f'{tp} x {memory} GB' for memory, tp in columns)} |\n|---|{'---|' * len(columns)}\n"
    for name, shape in MODELS.items():
        cells = []
        for memory, tp in columns:
            room = 0.85 * memory * GB - 2 * shape.parameters / tp
            tokens = int(room) // cache_bytes(shape, tp, 2) if room > 0 else 0
            cells.append(f"{tokens / 1000:,.0f} k" if tokens >= 4096 else "—")
        yield f"| {name} | {' | '.join(cells)} |\n"


_COUNT = """
## How it is counted

Bytes for P trained parameters on R ranks. Float32 master weights take 4 bytes each, gradients 4, AdamW's moments 8:

| | GPU | host |
|---|---|---|
| `single` | 16 P, and 2 for each parameter of a layer, for its bfloat16 copy | |
| `fsdp2` | 16 P / R, and the layers that are temporarily gathered | |
| `fsdp2`, offload | the layers that are temporarily gathered | 16 P / R a rank |
| `deepspeed` 1, 2, 3 | 8 P + 12 P / R; 4 P + 16 P / R; 20 P / R | |
| reference of a KL (not with LoRA) | 4 P / R | |
| two snapshots for publications | a bucket in transit (`trainer.bucket_mib`), one a replica over NCCL | 4 P, pinned |
| loading | | almost nothing (`fsdp2`); 4 P (`single`) |
| a checkpoint being written | | 12 P |

`headrace doctor run.toml` counts with your model's files, your keys and this machine; if the plan does not fit, it
names keys that make it fit.
"""

if __name__ == "__main__":
    main()
