"""The language model as the training step needs it: hidden states and the head, apart."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from services.trainer.algorithms.products import speed_up
from services.trainer.lora import adapter_parameters, add_adapters, merged_state
from wire.errors import ConfigError
from wire.settings import LoraTable

_LOGIT_CHANGES = ("final_logit_softcapping", "logits_scaling", "logit_scale")
"""Config keys of families whose logits are more than hidden states times head."""


class Policy:
    """A causal language model split at its head."""

    def __init__(self, model: Any, *, forward_dtype: torch.dtype, lora: LoraTable | None = None) -> None:
        """`lora`: the model has these adapters, and only they are trained."""
        self.model = model
        self.lora = lora if lora is not None and lora.rank else None
        self._body: nn.Module = model.get_decoder()
        self._head: nn.Module = model.get_output_embeddings()
        self._forward_dtype = forward_dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.device

    @property
    def head(self) -> Float[Tensor, "vocab hidden"]:
        """The head's weight (the embedding's own, if they are tied)."""
        weight = self._head.weight
        assert isinstance(weight, Tensor)
        return weight

    def hidden(self, token_ids: Int[Tensor, "rows seq"]) -> Float[Tensor, "rows seq hidden"]:
        """Hidden states before the head. Rows begin at position 0; padding at their end changes nothing before it."""
        low = self._forward_dtype != torch.float32
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=low):
            states = self._body(input_ids=token_ids, use_cache=False).last_hidden_state
        assert isinstance(states, Tensor)
        return states.to(self._forward_dtype) if low else states

    def named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Trained parameters in the model's order, each once, named as in a model's or adapter's file.

        The order of publication.
        """
        yield from adapter_parameters(self.model) if self.lora else self.model.named_parameters()

    def whole_state(self) -> dict[str, Tensor]:
        """The model's state dict; adapters are merged into it."""
        state: dict[str, Tensor] = merged_state(self.model) if self.lora else self.model.state_dict()
        return state


def load_policy(
    path: Path,
    *,
    device: str,
    forward_dtype: torch.dtype,
    trainable: bool = True,
    gradient_checkpointing: bool = False,
    lora: LoraTable | None = None,
) -> Policy:
    """Loads safetensors as float32 master weights; runs no code of the folder. Raises ConfigError for a bad one.

    With `lora` the weights are frozen, and adapters are trained beside them.
    """
    if not (path / "config.json").is_file():
        raise ConfigError(f"model.path {path} is no Hugging Face model folder: it has no config.json")
    transformers_logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, use_safetensors=True, trust_remote_code=False, local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"model.path {path} cannot be loaded: {error}") from error
    _refuse_other_logits(model, path)
    model.to(device)
    model.requires_grad_(trainable)
    if lora is not None and lora.rank:
        add_adapters(model, lora)
    model.train(trainable)
    if gradient_checkpointing and trainable:
        # The reentrant kind needs inputs with gradients, which a frozen embedding has not.
        model.gradient_checkpointing_enable({"use_reentrant": False})
    speed_up(model)
    return Policy(model, forward_dtype=forward_dtype, lora=lora)


def _refuse_other_logits(model: Any, path: Path) -> None:
    """Logprobs are taken from hidden states times head; a family that does more would silently train on others."""
    for key in _LOGIT_CHANGES:
        if getattr(model.config, key, None) not in (None, 1, 1.0):
            raise ConfigError(f"model.path {path}: {key} of {model.config.model_type} is not supported")
    if getattr(model.get_output_embeddings(), "bias", None) is not None:
        raise ConfigError(f"model.path {path}: a head with a bias is not supported")
