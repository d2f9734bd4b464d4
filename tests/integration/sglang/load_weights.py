"""SGLang's own `load_weights` on its own models: does every published tensor reach a parameter?

Run by SGLang's interpreter, on a CPU: `load_weights.py JOBS RESULTS PORT`. JOBS is JSON: family -> [model folder,
folder of what was published]. The latter holds `published.safetensors` (every element of it another number) and
`buckets.json` (the names in each call). RESULTS says of each family what its class is, or why it cannot be built, and,
after the calls:

- `unset`: parameters that were filled with NaN before, and in which some is left;
- `other`: parameters that are not what SGLang makes of the checkpoint itself;
- `lost`: published tensors some element of which is in no parameter;
- `checksums`: of the parameters, as a server tells them;
- `unnoticed`: published tensors without which `unset` and `other` are no longer.
"""

import hashlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from sglang.srt.configs.device_config import DeviceConfig
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.configs.update_config import adjust_config_with_unaligned_cpu_tp
from sglang.srt.distributed import init_distributed_environment, initialize_model_parallel
from sglang.srt.layers.dp_attention import init_dp_gathered_buffer, initialize_dp_attention
from sglang.srt.layers.moe import initialize_moe_config
from sglang.srt.model_loader import get_model
from sglang.srt.runtime_context import SpawnRanks, publish
from sglang.srt.server_args import ServerArgs

BACKENDS = {"gpt_oss": "intel_amx"}
"""Attention that a family insists on; none is computed here."""


def main(jobs: dict[str, list[str]], port: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for family, (folder, sent) in jobs.items():
        try:
            found[family] = examine(build(family, folder, port), Path(sent))
        except Exception:
            found[family] = {"error": traceback.format_exc()}
    return found


def examine(model: Any, sent: Path) -> dict[str, Any]:
    own = {name: each.detach().clone() for name, each in model.named_parameters()}
    published = load_file(sent / "published.safetensors")
    calls = json.loads((sent / "buckets.json").read_text())
    unset, other = load(model, own, published, calls)
    return {
        "class": type(model).__name__,
        "parameters": len(own),
        "unset": unset,
        "other": other,
        "lost": lost(model, published),
        "checksums": {name: checksum(each) for name, each in model.named_parameters()},
        "unnoticed": [name for name in published if not any(load(model, own, published, calls, without=name))],
    }


def load(
    model: Any, own: dict[str, Any], published: dict[str, Any], calls: list[list[str]], without: str = ""
) -> tuple[list[str], list[str]]:
    """Names of parameters in which NaN is left, and of those that are not the checkpoint's."""
    with torch.no_grad():
        for each in model.parameters():
            each.fill_(torch.nan)
    for names in calls:
        model.load_weights((name, published[name]) for name in names if name != without)
    now = dict(model.named_parameters())
    unset = [name for name, each in now.items() if each.isnan().any()]
    return unset, [name for name, each in now.items() if not torch.equal(each, own[name])]


def lost(model: Any, published: dict[str, Any]) -> list[str]:
    pools: dict[Any, Any] = {}
    for each in model.parameters():
        pools.setdefault(each.dtype, []).append(each.detach().flatten())
    held = {dtype: torch.cat(parts) for dtype, parts in pools.items()}
    return [
        name
        for name, tensor in published.items()
        if not any(torch.isin(tensor.flatten().to(dtype), values).all() for dtype, values in held.items())
    ]


def checksum(tensor: Any) -> str:
    """As the server's `/weights_checker` makes it on a CPU."""
    return hashlib.sha256(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def build(family: str, folder: str, port: int) -> Any:
    """The model as a server has it, with the checkpoint's weights."""
    arguments = ServerArgs(
        model_path=folder,
        device="cpu",
        attention_backend=BACKENDS.get(family, "torch_native"),
        dtype="float32",
        disable_overlap_schedule=True,
        skip_tokenizer_init=True,
        mem_fraction_static=0.1,
    )
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=0))
    config = adjust_config_with_unaligned_cpu_tp(ModelConfig.from_server_args(arguments), LoadConfig(), 1)
    if not torch.distributed.is_initialized():
        address = f"tcp://127.0.0.1:{port}"
        init_distributed_environment(
            backend="gloo", world_size=1, rank=0, local_rank=0, distributed_init_method=address
        )
        initialize_model_parallel()
        initialize_dp_attention(arguments)
    init_dp_gathered_buffer(config)
    initialize_moe_config()
    return get_model(model_config=config, load_config=LoadConfig(), device_config=DeviceConfig("cpu"))


if __name__ == "__main__":
    results = main(json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[3]))
    Path(sys.argv[2]).write_text(json.dumps(results, indent=1))
