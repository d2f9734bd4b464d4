"""The trained model as a Hugging Face folder: safetensors, config, tokenizer; there whole or not at all."""

import json
import shutil
from pathlib import Path

import torch

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

    Returns the `weights_sha256` of what was written.
    """
    aside = target.parent / f".aside-{target.name}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    tensors = {name: tensor.to(dtype) for name, tensor in policy.model.state_dict().items()}
    policy.model.save_pretrained(aside, state_dict=tensors)
    config = json.loads((aside / "config.json").read_text())
    (aside / "config.json").write_text(json.dumps(config | {"dtype": str(dtype).removeprefix("torch.")}, indent=2))
    for name in COPIED_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, aside / name)
    old = target.parent / f".aside-old-{target.name}"
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    aside.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    return weights_sha256((name, weight.detach().to(dtype)) for name, weight in policy.named_weights())
