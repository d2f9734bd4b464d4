"""QLoRA: the base in 4 bits is never written to, never merged and never saved."""

import pytest
import torch
from safetensors.torch import load_file

from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.export.model_folder import export_model
from headrace.services.trainer.model.loading import load_policy, load_rounded
from headrace.services.trainer.model.quantization import quantized_weights
from headrace.wire.config.settings import LoraTable
from headrace.wire.weights import weights_sha256
from tests.extras import needs
from tests.unit.services.trainer.builders import tiny_folder

pytestmark = needs("bitsandbytes", extra="qlora")
TABLE = LoraTable(rank=2, alpha=8, targets=("q_proj", "down_proj"), quantize="nf4")
IDS = torch.tensor([[3, 7, 11, 2, 5, 19]])


def score(scorer):
    places = torch.arange(5)
    return scorer(IDS[:, :-1], torch.zeros_like(places), places, IDS[0, 1:], torch.ones(5), 4).logprobs


def load(source, dtype=torch.float32):
    torch.manual_seed(1)
    policy = load_policy(source, device="cpu", forward_dtype=dtype, lora=TABLE)
    return policy, SingleDevice(policy, betas=(0.9, 0.99))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adapters_learn_beside_a_base_whose_bytes_stay(tmp_path, dtype):
    source = tiny_folder(tmp_path / "model", hidden=32)
    policy, backend = load(source, dtype)
    quantized = quantized_weights(policy)
    assert len(quantized) == 7 and all(weight.dtype == torch.uint8 for weight in quantized)
    before = {name: value.clone() for name, value in policy.model.state_dict().items() if "lora_" not in name}
    begin = float(score(backend).sum().detach())
    for _ in range(10):
        backend.backward(-score(backend).sum())
        assert backend.apply(learning_rate=0.02, grad_clip=1.0) > 0
    assert float(score(backend).sum().detach()) > begin + 0.5
    after = policy.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(".lora_" in name and weight.dtype == torch.float32 for name, weight in backend.named_weights())


def test_without_its_adapters_the_model_is_the_base_and_near_to_the_unrounded_one(tmp_path):
    source = tiny_folder(tmp_path / "model", hidden=32)
    policy, backend = load(source)
    with torch.no_grad():
        begin = score(backend)
        whole = score(load_policy(source, device="cpu", forward_dtype=torch.float32))
    backend.backward(-score(backend).sum())
    backend.apply(learning_rate=0.1, grad_clip=0.0)
    with torch.no_grad():
        assert (score(backend) - begin).abs().max() > 1e-2
        with policy.adapters_off():
            torch.testing.assert_close(score(backend), begin)
        assert (score(backend) - begin).abs().max() > 1e-2
    assert 0 < float((begin - whole).abs().max()) < 0.5


def test_the_export_is_the_adapter_alone_and_says_so(tmp_path):
    source = tiny_folder(tmp_path / "model", hidden=32)
    _, backend = load(source)
    digest = export_model(backend, source, tmp_path / "export", dtype=torch.float32)
    assert sorted(path.name for path in (tmp_path / "export").iterdir()) == ["README.md", "adapter"]
    written = load_file(tmp_path / "export" / "adapter" / "adapter_model.safetensors")
    assert digest == weights_sha256(written.items()) and len(written) == 4
    assert "`model`" in (tmp_path / "export" / "README.md").read_text()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
def test_the_engines_base_equals_the_dequantized_4_bit_weights(tmp_path, dtype, tied):
    source = tiny_folder(tmp_path / "model", hidden=32, tied=tied)
    policy, _ = load(source, dtype)
    load_rounded(source, device="cpu", dtype=dtype).save_pretrained(tmp_path / "base")
    plain = load_file(tmp_path / "base" / "model.safetensors")
    assert all(tensor.dtype == dtype for tensor in plain.values()) and ("lm_head.weight" in plain) is not tied
    # Not above: each worker of pytest imports this file.
    from bitsandbytes.nn import Linear4bit

    linears = [(n, m) for n, m in policy.model.named_modules() if isinstance(m, Linear4bit)]
    assert len(linears) == 7
    for name, module in linears:
        with torch.no_grad():
            # Each input picks one column.
            columns = module(torch.eye(module.in_features, dtype=dtype))
        assert torch.equal(columns.T, plain[name.replace(".base_layer", "") + ".weight"])
    again = load_policy(tmp_path / "base", device="cpu", forward_dtype=dtype)
    torch.testing.assert_close(score(again), score(policy), rtol=0, atol=1e-5 if dtype == torch.float32 else 0.05)
