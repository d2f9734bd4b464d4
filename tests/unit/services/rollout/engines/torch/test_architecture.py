"""Which models the engine takes, and how it refuses the others."""

import pytest
import torch
from transformers import GPT2Config, LlamaConfig, Qwen3Config

from headrace.services.rollout.engines.torch.architecture import read_architecture
from headrace.services.rollout.engines.torch.weights import build_weights, weight_shapes
from headrace.wire.errors import ConfigError, ContractError
from tests.rollout_models import make_model


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_architecture_lists_exactly_the_models_parameters(kind: str, tied: bool) -> None:
    model = make_model(kind, tie_word_embeddings=tied)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert weight_shapes(read_architecture(model.config)) == shapes


def test_other_families_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"'gpt2'.*LlamaForCausalLM"):
        read_architecture(GPT2Config())


def test_sliding_windows_are_refused() -> None:
    with pytest.raises(ConfigError, match="sliding-window"):
        read_architecture(Qwen3Config(use_sliding_window=True, max_window_layers=0))


def test_rotary_scaling_that_depends_on_the_sequence_is_refused() -> None:
    with pytest.raises(ConfigError, match="rope type 'dynamic'"):
        read_architecture(LlamaConfig(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}))


def test_missing_unknown_and_misshapen_parameters_are_refused() -> None:
    model = make_model()
    arch = read_architecture(model.config)
    named = dict(model.named_parameters())
    cases = [
        (named | {"model.extra": torch.zeros(1)}, "unknown.*model.extra"),
        ({name: value for name, value in named.items() if "norm" not in name}, "missing"),
        (named | {"model.norm.weight": torch.zeros(3)}, "model.norm.weight is"),
    ]
    for case, message in cases:
        with pytest.raises(ContractError, match=message):
            build_weights(arch, case, dtype=torch.float32, device=torch.device("cpu"))
