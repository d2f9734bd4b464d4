"""The trained model as a Hugging Face folder (safetensors, config, tokenizer), written whole or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.export.written import ADAPTER, ADAPTER_FILES, ADAPTER_ONLY_TITLE, README
from headrace.services.trainer.model.layout import own_dtypes
from headrace.services.trainer.model.lora import adapter_config
from headrace.services.trainer.model.model import TrainedModule
from headrace.wire.rundir import atomic
from headrace.wire.rundir.model_files import check_tokenizer, copy_tokenizer
from headrace.wire.weights import weights_sha256

_ADAPTER_ONLY = """
This run trained low-rank adapters beside the 4-bit weights of `{base}` (QLoRA). Those weights are not here, and the
adapter is not merged into them: merged, they would have to be rounded again. Load `{base}` (in nf4, as it was in
training) and put `adapter/` on it:

    model = AutoModelForCausalLM.from_pretrained(BASE, quantization_config=BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True))
    model = PeftModel.from_pretrained(model, "adapter")
"""


def export_model(
    backend: Backend, source: Path, target: Path, *, dtype: torch.dtype, run_dir: Path | None = None
) -> str:
    """Writes `target` (replacing it) with the weights cast to `dtype`, and the tokenizer's files from `source`.

    Adapters are merged, and also written separately to `target/adapter`. With a base in 4 bits only the adapters are
    written, and `target/README.md` names the base. Returns the `weights_sha256` of what was written. Every rank must
    call it; rank 0 writes, the others return "" without waiting for that. With `run_dir`, raises ConfigError if a file
    of the tokenizer is not there any more, or another one than at the run's first start.
    """
    module = backend.module
    state = backend.whole_state()
    adapter = dict(backend.whole_weights()) if module.lora else {}
    if backend.ranks.rank:
        return ""
    if run_dir is not None:
        check_tokenizer(source, run_dir)
    tensors = _cast(state, own_dtypes(module.model), dtype)
    # It is the result of a run, or the version that a resumed discriminator goes on with.
    with atomic.replaced_folder(target, durable=True) as aside:
        if module.quantized:
            (aside / README).write_text(ADAPTER_ONLY_TITLE + _ADAPTER_ONLY.format(base=source.name))
        else:
            _write_model(module, tensors, aside, dtype)
        if module.lora:
            _write_adapter(adapter, adapter_config(module.lora, source.name), aside / ADAPTER, dtype)
        copy_tokenizer(source, aside)
    written = target / ADAPTER if module.quantized else target
    return weights_sha256((n, t) for file in written.glob("*.safetensors") for n, t in load_file(file).items())


def _cast(state: Mapping[str, Tensor], own: Mapping[str, torch.dtype], dtype: torch.dtype) -> dict[str, Tensor]:
    """Casts each tensor to its own dtype, or else to `dtype`. Tied tensors stay one, and are written once."""
    made: dict[tuple[int, torch.Size, torch.dtype], Tensor] = {}
    return {
        name: made.setdefault((tensor.data_ptr(), tensor.shape, kind), tensor.to(kind))
        for name, tensor in state.items()
        for kind in (own.get(name, dtype),)
    }


def _write_model(module: TrainedModule, tensors: Mapping[str, Tensor], folder: Path, dtype: torch.dtype) -> None:
    module.model.save_pretrained(folder, state_dict=tensors)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": str(dtype).removeprefix("torch.")}, indent=2))


def _write_adapter(adapter: Mapping[str, Tensor], config: str, folder: Path, dtype: torch.dtype) -> None:
    folder.mkdir()
    tensors = {name: weight.to(dtype).contiguous() for name, weight in adapter.items()}
    config_name, weights_name = ADAPTER_FILES
    save_file(tensors, folder / weights_name, metadata={"format": "pt"})
    (folder / config_name).write_text(config)
