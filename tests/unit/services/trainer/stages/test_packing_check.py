"""A model that lets the examples of one row see each other is found before the first step, whatever its family."""

import importlib

import pytest
import torch
from structlog.testing import capture_logs

from headrace.services.trainer.backends.choice import make_backend
from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.stages.offline.packing_check import must_join
from headrace.services.trainer.stages.offline.sft import Supervised
from headrace.wire.errors import ConfigError
from tests.unit.services.trainer.families import family
from tests.unit.services.trainer.stages.stage_builders import examples, run, stage_settings, write_examples

APART = ("deepseek_v3", "gemma3_text", "gpt2", "llama", "mistral", "qwen2", "qwen3", "qwen3_moe")
LEAKING = (
    *("bamba", "bloom", "falcon_h1", "gpt_oss", "granitemoehybrid", "mamba2", "minimax", "nemotron_h", "opt"),
    *("qwen3_5_text", "qwen3_next"),
)
DTYPES = (torch.float32, torch.bfloat16)


def backend(model, dtype=torch.float32):
    return make_backend(Policy(model, forward_dtype=dtype), Ranks.alone(), torch.device("cpu"), BackendOptions())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", APART)
def test_packing_accepts_a_family_that_keeps_examples_apart(kind, dtype):
    assert must_join(backend(family(kind), dtype), chunk=64) is False


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", LEAKING)
def test_packing_rejects_a_family_whose_examples_see_each_other_and_names_the_fix(kind, dtype):
    with pytest.raises(ConfigError, match=rf"sft\.pack_tokens: .* type {kind} let .*Set sft\.pack_tokens = 0"):
        must_join(backend(family(kind), dtype), chunk=64)


def settings(folder, kind, **changes):
    folder.mkdir()
    family(kind).save_pretrained(folder / "model")
    (folder / "run").mkdir()
    rows = [([5, 6 + n % 3], [9 + n % 3, 10, 11, 1][: 2 + n % 3]) for n in range(12)]
    write_examples(folder / "run" / "examples.parquet", rows)
    return stage_settings(folder / "run", "sft", steps=3, batch_size=8, learning_rate=1e-2, **changes)


def test_the_stage_refuses_to_pack_such_a_model_and_trains_it_row_by_row(tmp_path):
    with pytest.raises(ConfigError, match=r"type opt .*Set sft\.pack_tokens = 0"):
        run(settings(tmp_path / "packed", "opt", pack_tokens=16))
    assert not (tmp_path / "packed" / "run" / "metrics.jsonl").exists()
    assert run(settings(tmp_path / "alone", "opt"))


@pytest.fixture
def kernels(monkeypatch):
    """The gated delta rule and the convolution as their GPU kernels are: they begin anew where they are told to."""
    module = importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next")
    rule, convolve = module.torch_chunk_gated_delta_rule, module.causal_conv1d_fn
    told = []

    def delta_rule(query, key, value, *, g, beta, cu_seqlens=None, **more):
        if cu_seqlens is None:
            return rule(query, key, value, g=g, beta=beta)
        assert len(query) == 1, "the kernel takes one row"
        told.append(cu_seqlens.tolist())
        sizes = cu_seqlens.diff().tolist()
        parts = zip(*(each.split(sizes, dim=1) for each in (query, key, value, g, beta)), strict=True)
        return torch.cat([rule(q, k, v, g=decay, beta=b)[0] for q, k, v, decay, b in parts], dim=1), None

    def convolution(states, weight, bias=None, activation=None, seq_idx=None, **more):
        if seq_idx is None:
            return convolve(states, weight, bias, activation=activation)
        assert seq_idx.dtype == torch.int32 and seq_idx.shape == (states.shape[0], states.shape[2])
        sizes = seq_idx[0].bincount().tolist()
        return torch.cat([convolve(part, weight, bias, activation=activation) for part in states.split(sizes, 2)], 2)

    monkeypatch.setattr(module, "torch_chunk_gated_delta_rule", delta_rule)
    monkeypatch.setattr(module, "causal_conv1d_fn", convolution)
    return told


def gradients(objective, units):
    found = backend(family("qwen3_next"))
    sums = objective.sums(found, units)
    sums["loss"].backward()
    return sums["loss"].item(), {name: weight.grad for name, weight in found.module.named_weights()}


def test_where_kernels_take_bounds_rows_are_joined_and_no_gradient_changes(kernels):
    with capture_logs() as logs:
        assert must_join(backend(family("qwen3_next")), chunk=64) is True
    assert [line["event"] for line in logs] == ["packed_rows_joined"]
    given = examples(11, seed=4, turns=True)
    loss, alone = gradients(Supervised(pack_tokens=0, logprob_chunk=7), [(one,) for one in given])
    kernels.clear()
    packing = Supervised(pack_tokens=24, logprob_chunk=7, joined=True)
    units = packing.units(given)
    packed_loss, packed = gradients(packing, units)
    sizes = [one.row_tokens for unit in units for one in unit]
    assert kernels and all(torch.tensor(bounds).diff().tolist() == sizes for bounds in kernels)
    assert packed_loss == pytest.approx(loss, rel=1e-5)
    largest = max(one.abs().max() for one in alone.values() if one is not None)
    for name, one in alone.items():
        if one is not None:
            assert (packed[name] - one).abs().max() <= 1e-4 * largest, name
