"""One training step on a GPU by model size: seconds, trained tokens a second, MFU, peak memory. Random weights.

python -P -m headrace.selfcheck.step --size 0.6 --longest 4096 --budget 16384 --on cuda|cpu
"""

import argparse
import sys

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, Qwen3Config

from headrace.doctor.memory_plan import Training, trainer_gpu
from headrace.doctor.sizes import ModelShape, shape_of
from headrace.selfcheck.probe import device_of, end, parser
from headrace.services.trainer.config.chunks import logprob_chunk
from headrace.services.trainer.throughput.measure import measure_step


def _qwen3(hidden: int, layers: int, inner: int, heads: int, kv_heads: int, width: int, vocabulary: int) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=width,
        max_position_embeddings=40960,
        tie_word_embeddings=True,
    )


SIZES = {
    "tiny": _qwen3(64, 2, 128, 4, 2, 16, 256),
    "0.6": _qwen3(1024, 28, 3072, 16, 8, 128, 151936),
    "1.7": _qwen3(2048, 28, 6144, 16, 8, 128, 151936),
    "4": _qwen3(2560, 36, 9728, 32, 8, 128, 151936),
}


def planned_shape(config: PreTrainedConfig) -> ModelShape:
    """What the memory plan is computed from, without any weights."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    return shape_of(shapes, config.to_dict(), tied=config.tie_word_embeddings)


def main() -> int:
    """Measures the mean of two steps, after one for warm-up."""
    made = parser(__doc__ or "")
    made.add_argument("--size", choices=tuple(SIZES), default="0.6")
    made.add_argument("--longest", type=int, default=4096)
    made.add_argument("--budget", type=int, default=16384)
    made.add_argument("--tokens", type=int, default=65536)
    made.add_argument("--chunk", type=int, default=0)
    made.add_argument("--compile", action="store_true")
    made.add_argument("--checkpointing", action="store_true")
    options = made.parse_args()
    device, model = device_of(options.on), SIZES[options.size]
    if device.type == "cuda" and (lack := _lack(model, options, torch.cuda.mem_get_info(device)[0])):
        end(ok=False, here=False, said=lack)
        return 0
    ok, numbers = measure_step(
        model,
        device,
        longest=options.longest,
        tokens=options.tokens,
        micro_batch_tokens=options.budget,
        chunk=options.chunk,
        compiled=options.compile,
        checkpointing=options.checkpointing,
    )
    said = ", ".join(f"{name} {value}" for name, value in numbers.items() if value is not None and name != "parameters")
    end(ok=ok, said=said, **numbers)
    return 0


def _lack(model: Qwen3Config, options: argparse.Namespace, free: int) -> str:
    """What is missing if the memory plan finds the step too large for a GPU with `free` bytes."""
    how = Training(
        micro_batch_tokens=options.budget,
        logprob_chunk=logprob_chunk(options.chunk, "cuda"),
        checkpointing=options.checkpointing,
    )
    needed = trainer_gpu(planned_shape(model), how, first=False).total
    return f"needs {needed / 2**30:.0f} GiB, {free / 2**30:.0f} are free" if needed > free else ""


if __name__ == "__main__":
    sys.exit(main())
