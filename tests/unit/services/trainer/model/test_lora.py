"""Low-rank adapters: what is trained, what travels, and what comes out at the end."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from headrace.services.rollout.engines.torch.engine import TorchEngine
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.export.model_folder import export_model
from headrace.services.trainer.model.loading import load_policy
from headrace.services.trainer.model.lora import adapter_config
from headrace.services.trainer.publication.canary import make_canary
from headrace.services.trainer.publication.publisher import Publisher
from headrace.wire.config.settings import LoraTable
from headrace.wire.contracts import PolicyVersion
from headrace.wire.contracts.arrays import floats_from_bytes, ids_from_bytes
from headrace.wire.errors import ConfigError
from headrace.wire.v1 import rollout_pb2
from headrace.wire.weights import weights_sha256
from tests.unit.services.trainer.builders import tiny_folder

LORA = LoraTable(rank=2, alpha=8, targets=("q_proj", "v_proj", "down_proj"))
IDS = torch.tensor([[3, 7, 11, 2, 5, 19]])


@pytest.fixture
def source(tmp_path):
    return tiny_folder(tmp_path / "model")


def trained(source, *, steps=3, **options):
    """A policy whose adapters have taken some steps."""
    torch.manual_seed(1)
    policy = load_policy(source, device="cpu", forward_dtype=torch.float32, lora=LORA, **options)
    backend = SingleDevice(policy, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)
    for _ in range(steps):
        backend.backward((policy.hidden(IDS) @ policy.head.T).square().mean())
        assert backend.apply(learning_rate=0.05, grad_clip=0.0) > 0
    return policy, backend


def logits(model):
    with torch.no_grad():
        return model(IDS).logits


def with_adapter(model, folder):
    # Not above: each worker of pytest imports this file, and peft takes seconds.
    from peft import PeftModel

    return PeftModel.from_pretrained(model, folder)


@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_only_adapters_are_trained_and_the_base_stays(source, gradient_checkpointing):
    policy, backend = trained(source, gradient_checkpointing=gradient_checkpointing)
    names = [name for name, _ in backend.named_weights()]
    assert all(name.startswith("base_model.model.model.layers.") and ".lora_" in name for name in names)
    assert len(names) == 6
    state = {name.replace(".base_layer.", "."): tensor for name, tensor in policy.model.state_dict().items()}
    for name, tensor in load_file(source / "model.safetensors").items():
        assert torch.equal(state[name], tensor)
    assert any(float(weight.abs().max()) > 0 for name, weight in backend.named_weights() if "lora_B" in name)


def test_the_export_is_the_merged_model_and_the_adapter_beside_it(source, tmp_path):
    policy, backend = trained(source)
    digest = export_model(backend, source, tmp_path / "export", dtype=torch.float32)
    expected = logits(policy.model)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    torch.testing.assert_close(logits(merged), expected, atol=1e-5, rtol=0)
    assert (expected - logits(AutoModelForCausalLM.from_pretrained(source))).abs().max() > 1e-2
    beside = with_adapter(AutoModelForCausalLM.from_pretrained(source), tmp_path / "export" / "adapter")
    torch.testing.assert_close(logits(beside), expected, atol=1e-5, rtol=0)
    assert digest == weights_sha256(merged.named_parameters())


def test_an_adapter_target_missing_from_the_model_is_rejected(source):
    with pytest.raises(ConfigError, match=r"model\.lora\.targets: no qkv in the model, it has .*q_proj"):
        load_policy(
            source, device="cpu", forward_dtype=torch.float32, lora=LoraTable(rank=2, targets=("qkv", "q_proj"))
        )


def publisher(source, folder):
    return Publisher(
        host="127.0.0.1",
        dtype=torch.float32,
        bucket_bytes=1 << 20,
        weights_folder=folder,
        model_path=source,
        disk_only=False,
        adapter_config=adapter_config(LORA, "model"),
        canary=lambda policy: make_canary(policy, seed=1, length=8, tolerance=1e-4, chunk=4),
    )


async def test_only_the_adapter_travels_and_the_torch_engine_scores_as_the_trainer(source, tmp_path):
    _, backend = trained(source)
    sender = publisher(source, tmp_path / "weights")
    held = sender.hold(backend, 3)
    assert not sender.routes.backends
    path = await sender.save(3)
    loaded = AutoModelForCausalLM.from_pretrained(source)
    torch.testing.assert_close(logits(with_adapter(loaded, path)), logits(backend.module.model), atol=1e-5, rtol=0)
    assert json.loads((tmp_path / "weights" / "v000003" / "adapter_config.json").read_text())["r"] == 2
    engine = TorchEngine(source, max_rows=2)
    try:
        request = rollout_pb2.ReceiveWeightsRequest(disk_path=path)
        digests = await engine.receive(held.snapshot.plan, request, 10)
        assert digests == [bucket.digest for bucket in held.snapshot.plan.buckets]
        await engine.install(PolicyVersion(incarnation=1, version=3), held.digest, 10)
        found = await engine.score(ids_from_bytes(held.canary.token_ids), 10)
        np.testing.assert_allclose(found, floats_from_bytes(held.canary.logprobs), atol=1e-5)
    finally:
        await engine.close(5)
