"""The trained model as a Hugging Face folder: safetensors, config, tokenizer; there whole or not at all."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from services.trainer.lora import adapter_config
from services.trainer.model import Policy
from wire.weights import weights_sha256

COPIED_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)
"""What belongs to a model beside config and weights."""


def export_model(policy: Policy, source: Path, target: Path, *, dtype: torch.dtype) -> str:
    """Writes `target` (replacing it) with the weights cast to `dtype`, the tokenizer's files out of `source`.

    Adapters are merged into it, and lie by themselves in `target/adapter`. Returns the `weights_sha256` of what was
    written.
    """
    aside = target.parent / f".aside-{target.name}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    tensors = {name: tensor.to(dtype) for name, tensor in policy.whole_state().items()}
    policy.model.save_pretrained(aside, state_dict=tensors)
    config = json.loads((aside / "config.json").read_text())
    (aside / "config.json").write_text(json.dumps(config | {"dtype": str(dtype).removeprefix("torch.")}, indent=2))
    if policy.lora:
        _write_adapter(policy, source, aside / "adapter", dtype)
    for name in COPIED_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, aside / name)
    old = target.parent / f".aside-old-{target.name}"
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    aside.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    if policy.lora:
        return weights_sha256((n, t) for file in target.glob("*.safetensors") for n, t in load_file(file).items())
    return weights_sha256((name, weight.detach().to(dtype)) for name, weight in policy.named_weights())


def _write_adapter(policy: Policy, source: Path, folder: Path, dtype: torch.dtype) -> None:
    assert policy.lora is not None
    folder.mkdir()
    tensors = {name: weight.detach().to(dtype).cpu().contiguous() for name, weight in policy.named_weights()}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(adapter_config(policy.lora, source.name))
