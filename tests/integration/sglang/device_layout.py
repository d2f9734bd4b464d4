"""The parameters of SGLang's own models as a GPU keeps them, on a CPU.

Run by SGLang's interpreter: `device_layout.py JOBS RESULTS PORT`. JOBS is JSON: family -> [model folder, folder of what
was published], as for `load_weights.py`. Beside what was published `state-RANKS-RANK.safetensors` are written: each
tensor that `/weights_checker` would hash on that tensor-parallel rank, after the calls of `load_weights`. RESULTS says
of each family what its class is, or why it cannot be built.

A rank is one by SGLang's own context (`runtime_context.py`, 430-446): its layers divide and load by what that says.
Groups of one process stand behind it, since nothing is computed.

What SGLang 0.5.23 does on a CPU alone, and is left out: the padding of an MLP's size
(`adjust_config_with_unaligned_cpu_tp`, `model_executor/model_runner.py` 1302), and the loading and packing that go with
it (`_is_cpu` in `layers/linear.py` 163, `layers/vocab_parallel_embedding.py` 51, `layers/quantization/unquant.py` 71,
`layers/moe/fused_moe_triton/layer.py` 99).
"""

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import load_weights
import torch
from safetensors.torch import load_file, save_file
from sglang.srt.layers import linear, vocab_parallel_embedding
from sglang.srt.layers.moe.fused_moe_triton import layer as fused_moe
from sglang.srt.layers.quantization import unquant
from sglang.srt.runtime_context import get_parallel
from sglang.srt.utils.weight_checker import WeightChecker, _build_check_entries, _is_skip_weight_check

RANKS = (1, 2, 4)


class Group:
    """A rank of several, as far as layers ask."""

    def __init__(self, real: Any, rank: int, size: int) -> None:
        self._real, self.rank_in_group, self.world_size = real, rank, size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def main(jobs: dict[str, list[str]], port: int) -> dict[str, Any]:
    for module in (linear, vocab_parallel_embedding, unquant, fused_moe):
        module._is_cpu = False
    load_weights.adjust_config_with_unaligned_cpu_tp = lambda config, load, ranks: config
    found: dict[str, Any] = {}
    for family, (folder, sent) in jobs.items():
        try:
            for ranks in RANKS:
                for rank in range(ranks):
                    with as_rank(rank, ranks):
                        model = load_weights.build(family, folder, port)
                        save_file(state(model, Path(sent)), Path(sent) / f"state-{ranks}-{rank}.safetensors")
            found[family] = {"class": type(model).__name__}
        except Exception:
            found[family] = {"error": traceback.format_exc()}
    return found


@contextmanager
def as_rank(rank: int, ranks: int) -> Iterator[None]:
    if ranks == 1:
        yield
        return
    parallel = get_parallel()
    groups = {name: Group(getattr(parallel, name), rank, ranks) for name in ("tp_group", "attn_tp_group")}
    places = {f"{name}_rank": rank for name in ("tp", "attn_tp", "moe_tp")}
    sizes = {f"{name}_size": ranks for name in ("tp", "attn_tp", "moe_tp")}
    with parallel.override(**groups, **places, **sizes):
        yield


def state(model: Any, sent: Path) -> dict[str, Any]:
    published = load_file(sent / "published.safetensors")
    with torch.no_grad():
        for each in model.parameters():
            each.fill_(torch.nan)
    for names in json.loads((sent / "buckets.json").read_text()):
        model.load_weights((name, published[name]) for name in names)
    checker = WeightChecker.__new__(WeightChecker)
    checker._get_model = lambda: model
    raw = dict(checker._model_state())
    skipped = {name for name, each in raw.items() if _is_skip_weight_check(name, each)}
    entries = _build_check_entries(raw, skipped)
    return {name: raw[name].detach().clone().contiguous() for name, compared, _ in entries if compared}


if __name__ == "__main__":
    results = main(json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[3]))
    Path(sys.argv[2]).write_text(json.dumps(results, indent=1))
