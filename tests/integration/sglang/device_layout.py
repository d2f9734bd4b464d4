"""The parameters of SGLang's own models as a GPU keeps them, on a CPU.

Run by SGLang's interpreter: `device_layout.py JOBS RESULTS PORT`. JOBS is JSON: family -> [model folder, folder of what
was published], as for `load_weights.py`. Beside what was published `state.safetensors` is written: each tensor that
`/weights_checker` would hash, after the calls of `load_weights`. RESULTS says of each family what its class is, or why
it cannot be built.

What SGLang 0.5.23 does on a CPU alone, and is left out: the padding of an MLP's size
(`adjust_config_with_unaligned_cpu_tp`, `model_executor/model_runner.py` 1302), and the loading and packing that go with
it (`_is_cpu` in `layers/linear.py` 163, `layers/vocab_parallel_embedding.py` 51, `layers/quantization/unquant.py` 71).
"""

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import load_weights
import torch
from safetensors.torch import load_file, save_file
from sglang.srt.layers import linear, vocab_parallel_embedding
from sglang.srt.layers.quantization import unquant
from sglang.srt.utils.weight_checker import WeightChecker, _build_check_entries, _is_skip_weight_check


def main(jobs: dict[str, list[str]], port: int) -> dict[str, Any]:
    for module in (linear, vocab_parallel_embedding, unquant):
        module._is_cpu = False
    load_weights.adjust_config_with_unaligned_cpu_tp = lambda config, load, ranks: config
    found: dict[str, Any] = {}
    for family, (folder, sent) in jobs.items():
        try:
            model = load_weights.build(family, folder, port)
            save_file(state(model, Path(sent)), Path(sent) / "state.safetensors")
            found[family] = {"class": type(model).__name__}
        except Exception:
            found[family] = {"error": traceback.format_exc()}
    return found


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
