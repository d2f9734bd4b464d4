"""The trainer's logits are hidden states times head: a model whose own logits are others is refused at load."""

import pytest
import torch

from headrace.services.trainer.model.loading import load_policy, load_rounded
from headrace.wire.config.settings import LoraTable
from headrace.wire.errors import ConfigError
from headrace.wire.weights.head_check import logits_problem
from tests.unit.services.trainer.builders import tiny_folder
from tests.unit.services.trainer.families import family

PLAIN = (
    *("bamba", "bloom", "deepseek_v3", "gemma", "gemma3_text", "gpt2", "gpt_oss", "granitemoehybrid", "llama"),
    *("mamba2", "minimax", "mistral", "nemotron_h", "opt", "qwen2", "qwen2_moe", "qwen3", "qwen3_5_text", "qwen3_moe"),
    "qwen3_next",
)
OTHERS = [
    ("falcon_h1", {"lm_head_multiplier": 0.0195}, r"by 0\.0195 \(lm_head_multiplier = 0\.0195 in its config\)"),
    ("granite", {"logits_scaling": 8.0}, r"by 0\.125 \(logits_scaling = 8 in its config\)"),
    ("cohere", {}, r"by 0\.0625 \(logit_scale = 0\.0625 in its config\)"),
    ("minicpm3", {"dim_model_base": 8}, r"by 0\.25"),
    ("gemma2", {}, "caps its logits: what should be 100 is 29.9"),
    ("gemma3_text", {"final_logit_softcapping": 30.0}, "caps its logits"),
    ("nanochat", {}, "caps its logits: what should be 100 is 15"),
    ("phi", {}, "its head has a bias"),
]


@pytest.mark.parametrize("kind", PLAIN)
def test_a_family_with_plain_linear_logits_is_accepted(kind):
    assert logits_problem(family(kind)) is None
    if kind != "mamba2":  # Its pass on a CPU mixes dtypes.
        assert logits_problem(family(kind).to(torch.bfloat16)) is None


@pytest.mark.parametrize(("kind", "changes", "reason"), OTHERS)
def test_a_family_that_transforms_its_logits_is_rejected_with_the_reason(tmp_path, kind, changes, reason):
    family(kind, **changes).save_pretrained(tmp_path)
    assert logits_problem(family(kind, **changes).to(torch.bfloat16))
    for load in (
        lambda: load_policy(tmp_path, device="cpu", forward_dtype=torch.bfloat16),
        lambda: load_rounded(tmp_path, device="cpu", dtype=torch.float32),
    ):
        with pytest.raises(ConfigError, match=f"{kind} model .*{reason}.*another family"):
            load()


@pytest.mark.parametrize("tied", [True, False])
def test_an_adapter_on_the_head_is_refused_for_the_trainer_would_not_see_it(tmp_path, tied):
    source = tiny_folder(tmp_path, tied=tied)
    with pytest.raises(ConfigError, match=r"model\.lora\.targets: lm_head is the head"):
        load_policy(
            source, device="cpu", forward_dtype=torch.float32, lora=LoraTable(rank=2, targets=("q_proj", "lm_head"))
        )
