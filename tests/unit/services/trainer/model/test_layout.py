"""What is published is what `save_pretrained` writes, for every family whose checkpoints transformers converts."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from headrace.services.rollout.engines.torch.architecture import SUPPORTED
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model import layout
from headrace.services.trainer.model.layout import model_layout
from headrace.services.trainer.model.loading import load_policy
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.publication.index_check import check_published, checkpoint_names
from headrace.services.trainer.publication.outgoing import weight_groups
from headrace.wire.config.settings import LoraTable
from headrace.wire.errors import ConfigError
from headrace.wire.weights import snapshot_groups, tensors_of
from tests.families import converting_families, tiny_config, tiny_family
from tests.unit.services.trainer.builders import tiny_model

SMALLEST = 256
"""Bytes of a bucket: less than most groups have, so that each would be cut if it could be."""
AS_THEY_ARE = {"emu3", "gemma3n_text", "gemma4_unified", "lfm3", "mllama", "qwen3_5_text"}
"""Their causal models convert nothing when they are made from a config: what is converted is an encoder beside them, or
a prefix, which only a checkpoint that has it tells of."""


def published(model, *, dtype=torch.float32, bucket_bytes=SMALLEST):
    """As the trainer sends it."""
    backend = SingleDevice(Policy(model, forward_dtype=torch.float32))
    snapshot = snapshot_groups(weight_groups(backend, dtype), bucket_bytes=bucket_bytes)
    sent = list(tensors_of(snapshot.plan, snapshot.buckets))
    assert len(dict(sent)) == len(sent), "each name travels once"
    return dict(sent)


def saved(model, folder):
    """As transformers writes it."""
    model.save_pretrained(folder)
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape, name
        assert torch.equal(found[name], tensor), name


def test_no_family_is_left_out():
    found = converting_families()
    assert len(found) >= 50 and {"qwen2_moe", "qwen3_moe", "mixtral", "deepseek_v3", "qwen3_next"} <= set(found)
    assert set(found) >= AS_THEY_ARE


@pytest.mark.parametrize("kind", converting_families())
def test_published_tensors_equal_those_written_by_save_pretrained(tmp_path, kind):
    model = tiny_family(kind)
    expected = saved(model, tmp_path / "made")
    in_memory = {name for name, _ in model.named_parameters()}
    assert (in_memory <= expected.keys()) == (kind in AS_THEY_ARE), "the family converts, or is known not to"
    assert_same(published(model), expected)
    loaded = type(model).from_pretrained(tmp_path / "made", dtype=torch.float32)
    assert_same(published(loaded), expected)
    low = published(loaded, dtype=torch.bfloat16)
    assert_same(low, {name: tensor.to(low[name].dtype) for name, tensor in expected.items()})
    check_published(Policy(loaded, forward_dtype=torch.float32), tmp_path / "made")


@pytest.mark.parametrize("kind", ["qwen3_moe", "deepseek_v3", "deepseek_v4"])
def test_in_bfloat16_the_same_tensors_stay_wide_as_in_a_checkpoint(tmp_path, kind):
    model = tiny_family(kind)
    model.save_pretrained(tmp_path / "wide")
    low = AutoModelForCausalLM.from_pretrained(tmp_path / "wide", dtype=torch.bfloat16)
    expected = saved(low, tmp_path / "low")
    assert {tensor.dtype for tensor in expected.values()} > {torch.bfloat16} or kind == "qwen3_moe"
    assert_same(published(model, dtype=torch.bfloat16), expected)


def test_the_language_model_of_a_multimodal_checkpoint_keeps_its_published_names(tmp_path):
    """Only the checkpoint tells of the prefix; what sees stays with the engine as it is."""
    config = tiny_config("qwen3_5_moe")
    AutoModelForImageTextToText.from_config(config, dtype=torch.float32).save_pretrained(tmp_path)
    index = checkpoint_names(tmp_path)
    assert any(name.startswith("model.visual.") for name in index)
    policy = load_policy(tmp_path, device="cpu", forward_dtype=torch.float32)
    check_published(policy, tmp_path)
    assert policy.layout.names == {name for name in index if not name.startswith("model.visual.")}
    written = load_file(tmp_path / "model.safetensors")
    assert_same(published(policy.model), {name: written[name] for name in policy.layout.names})


def test_a_conversion_that_loses_values_is_refused_at_the_start(monkeypatch):
    revert = layout.revert_weight_conversion

    def shortened(model, tensors):
        return {
            name: each[:1] if name.endswith("0.gate_proj.weight") else each
            for name, each in revert(model, tensors).items()
        }

    monkeypatch.setattr(layout, "revert_weight_conversion", shortened)
    with pytest.raises(ConfigError, match=r"mlp\.experts\.gate_up_proj hold 4096 values, 3616 would be published"):
        model_layout(tiny_family("qwen3_moe"))


@pytest.fixture
def folder(tmp_path):
    """A checkpoint of a mixture of experts, and how to write other names into it."""
    tiny_family("qwen3_next").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def rewritten(folder, change):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
    return load_policy(folder, device="cpu", forward_dtype=torch.float32)


def test_extra_checkpoint_tensors_are_rejected_unless_the_family_ignores_them(folder):
    policy = rewritten(folder, lambda tensors: tensors.update({"mtp.layers.0.norm.weight": torch.ones(4)}))
    check_published(policy, folder)
    policy = rewritten(folder, lambda tensors: tensors.update({"model.layers.0.mlp.extra.weight": torch.ones(4)}))
    with pytest.raises(
        ConfigError, match=r"model: its checkpoint has model\.layers\.0\.mlp\.extra\.weight, which .* never"
    ):
        check_published(policy, folder)


def test_a_published_name_that_the_checkpoint_lacks_is_refused(folder):
    policy = rewritten(folder, lambda tensors: tensors.pop("model.norm.weight"))
    with pytest.raises(
        ConfigError, match=r"its checkpoint has no model\.norm\.weight, which the trainer would publish"
    ):
        check_published(policy, folder)


@pytest.mark.parametrize("written", [True, False])
def test_a_tied_head_may_be_in_the_checkpoint_or_not(tmp_path, written):
    tiny_model(tied=True).save_pretrained(tmp_path)

    def tie(tensors):
        if written:
            tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    policy = rewritten(tmp_path, tie)
    check_published(policy, tmp_path)
    assert "lm_head.weight" not in policy.layout.names


def test_adapters_of_modules_with_another_name_in_the_checkpoint_are_refused(tmp_path):
    table = LoraTable.model_validate({"rank": 2, "alpha": 4, "targets": ["q_proj"]})
    for kind, name in (("qwen3_moe", ""), ("gemma3", "model.language_model.layers.0.self_attn.q_proj")):
        tiny_family(kind).save_pretrained(tmp_path / kind)
        policy = load_policy(tmp_path / kind, device="cpu", forward_dtype=torch.float32, lora=table)
        assert all(".lora_" in each for each in policy.layout.names)
        if not name:
            check_published(policy, tmp_path / kind)
            continue
        with pytest.raises(ConfigError, match="named or shaped otherwise in its checkpoint") as refused:
            check_published(policy, tmp_path / kind)
        assert name in str(refused.value)


@pytest.mark.parametrize("kind", SUPPORTED)
def test_families_of_the_embedded_engine_are_published_under_their_in_memory_names(kind):
    """It takes weights by these names."""
    model = tiny_family(kind)
    made = model_layout(model)
    assert [(group.sources[0], group.published[0][0]) for group in made.groups] == [
        (name, name) for name, _ in model.named_parameters()
    ]
    assert not any(group.converts or group.dtype for group in made.groups)
