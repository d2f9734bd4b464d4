"""Keeps out what models draw at random in training: engines have none of it, so each pass would be of another model."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from headrace.wire.telemetry.logs import get_logger

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_NOISES = ("jitter", "noise")
_TOKENS = 8
_TOLERANCE = {torch.float32: 1e-4}
"""Largest difference of two equal passes, relative to the largest state: sums on a GPU may come in any order."""
_LOW_PRECISION = 0.02
log = get_logger("trainer.noise")


def turn_noise_off(model: "PreTrainedModel", path: Path) -> None:
    """Sets the rates of dropout to 0, and holds modules with jitter (of routers, for instance) in eval mode for good.

    Jitter is not set to 0: Phi-3.5-MoE weighs its experts by it in eval mode too, as engines do.
    """
    dropout: dict[str, float] = {}
    for owner in (*model.modules(), model.config, model.config.get_text_config()):
        for key, value in _positive(owner).items():
            if type(value) is float and ("drop" in key or (key == "p" and isinstance(owner, _DROPOUTS))):
                setattr(owner, key, 0.0)
                dropout[f"{type(owner).__name__}.{key}"] = value
    if dropout:
        log.info("dropout_off", path=str(path), was=dropout, reason="the engines have none")
    jitter: dict[str, float] = {}
    for module in model.modules():
        found = {key: value for key, value in _positive(module).items() if any(part in key for part in _NOISES)}
        if found:
            module.train(False)
            # Of this module alone: checkpointing of activations needs layers in train mode.
            object.__setattr__(module, "train", partial(_train_children, module))
            jitter |= {f"{type(module).__name__}.{key}": value for key, value in found.items()}
    if jitter:
        log.info("jitter_off", path=str(path), was=jitter, reason="the engines have none")


def _positive(owner: object) -> Mapping[str, float]:
    return {key: value for key, value in vars(owner).items() if type(value) in (int, float) and value > 0}


def _train_children(module: nn.Module, mode: bool = True) -> nn.Module:
    """Replaces the `train` of a module that stays in eval mode."""
    for child in module.children():
        child.train(mode)
    return module


@torch.no_grad()
def noise_problem(model: "PreTrainedModel") -> str | None:
    """Why a pass in train mode differs from eval mode, in which engines sample; None if it does not. Two passes."""
    body, was_training = model.base_model, model.training
    device = next(model.parameters()).device
    token_ids = ((torch.arange(_TOKENS, device=device) * 97 + 11) % model.config.get_text_config().vocab_size)[None]
    try:
        trained, sampled = (
            body.train(mode)(input_ids=token_ids, use_cache=False).last_hidden_state for mode in (True, False)
        )
    finally:
        model.train(was_training)
    gap = _relative(trained, sampled)
    if gap <= _TOLERANCE.get(sampled.dtype, _LOW_PRECISION):
        return None
    return (
        f"a {model.config.model_type} model computes otherwise in train mode than in eval mode, in which engines "
        f"sample: its hidden states differ by {gap:.2g} of the largest. Set the rate of what it draws at random (a "
        "jitter, a noise, a drop rate) to 0 in its config.json, or choose a model of another family"
    )


def _relative(found: Tensor, expected: Tensor) -> float:
    """Largest difference relative to the largest of `expected`; infinite where one is not finite."""
    gap = float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-20))
    return gap if gap == gap else float("inf")
