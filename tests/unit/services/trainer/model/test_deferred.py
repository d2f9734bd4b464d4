"""Models whose weights are read later: equal in every bit, for every family, to what `from_pretrained` gives."""

from functools import partial

import pytest
import torch
from safetensors.torch import load_file, save_file

from headrace.services.trainer.model.deferred import load_deferred
from headrace.services.trainer.model.model import layers_of
from headrace.services.trainer.model.tensor_files import copy_rows, equal_in, read_whole, stored_tensors
from headrace.services.trainer.model.weight_sources import UndeferrableError
from headrace.wire.errors import ConfigError
from tests.families import converting_families, tiny_family
from tests.unit.services.trainer.builders import tiny_model
from tests.unit.services.trainer.families import FAMILIES, family

CPU = torch.device("cpu")
KINDS = [*converting_families(), *(kind for kind in FAMILIES if kind not in converting_families())]


def made(kind):
    return tiny_family(kind) if kind in converting_families() else family(kind)


def loader(model, folder, **options):
    model.save_pretrained(folder, **options)
    return partial(type(model).from_pretrained, folder, dtype=torch.float32)


def everything(model):
    return dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))


def assert_same(found, expected):
    assert [name for name, _ in found.named_parameters()] == [name for name, _ in expected.named_parameters()]
    tensors = everything(found)
    assert tensors.keys() == everything(expected).keys()
    for name, tensor in everything(expected).items():
        assert tensors[name].dtype == tensor.dtype and torch.equal(tensors[name], tensor), name
    assert conversions(found) == conversions(expected), "it is published and saved as the other one"


def conversions(model):
    return [(type(one), one.source_patterns, one.target_patterns) for one in model._weight_conversions]


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_is_read_later_as_from_pretrained_reads_it(tmp_path, kind):
    load = loader(made(kind).to(torch.bfloat16), tmp_path, max_shard_size="30KB")
    torch.manual_seed(7)
    expected = load()
    state = torch.get_rng_state()
    torch.manual_seed(7)
    model, deferred = load_deferred(load)
    assert torch.equal(state, torch.get_rng_state()), "what comes next is drawn as before"
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    assert matrices and all(weight.is_meta for weight in matrices)
    assert not any(buffer.is_meta for buffer in model.buffers())
    deferred.fill(model, model, device=CPU)
    assert_same(model, expected)


def test_weights_missing_from_the_checkpoint_are_drawn_as_in_a_plain_load(tmp_path):
    load = loader(tiny_family("qwen3_moe"), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    gone = [tensors.pop(f"model.layers.{layer}.self_attn.q_proj.weight") for layer in range(2)]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    torch.manual_seed(7)
    expected = load()
    torch.manual_seed(7)
    model, deferred = load_deferred(load)
    assert not model.model.layers[0].self_attn.q_proj.weight.is_meta
    deferred.fill(model, model, device=CPU)
    assert_same(model, expected)
    assert not torch.equal(model.model.layers[0].self_attn.q_proj.weight, gone[0])


@pytest.mark.parametrize("kind", ["qwen3_moe", "gemma2", "deepseek_v3"])
def test_a_deferred_model_computes_while_present_and_keeps_no_weights_afterwards(tmp_path, kind):
    load = loader(made(kind), tmp_path)
    expected = load()
    model, deferred = load_deferred(load)
    before = everything(model)
    ids = torch.tensor([[3, 7, 11, 2]])
    most = []
    for layer in layers_of(model.get_decoder()):
        layer.register_forward_hook(
            lambda *_: most.append(
                sum(not weight.is_meta for one in layers_of(model.get_decoder()) for weight in [*one.parameters()][:1])
            ),
            prepend=True,
        )
    with deferred.present(model, layers_of(model.get_decoder()), device=CPU), torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, expected(input_ids=ids).logits)
    assert most == [1] * len(layers_of(model.get_decoder())), "one layer at a time"
    after = everything(model)
    assert all(after[name] is tensor for name, tensor in before.items())


def test_other_files_than_safetensors_are_read_whole(tmp_path):
    load = loader(tiny_model(), tmp_path)
    torch.save(tiny_model().state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UndeferrableError, match="not in safetensors"):
        load_deferred(load)
    assert load() is not None, "transformers' own reading is back in its place"


def test_rows_are_read_in_pieces_and_cast(tmp_path, monkeypatch):
    from headrace.services.trainer.model import tensor_files

    monkeypatch.setattr(tensor_files, "_CHUNK_BYTES", 20)
    values = {
        "wide": torch.randn(7, 3),
        "low": torch.randn(5, 4).bfloat16(),
        "one": torch.tensor(3.5),
        "flags": torch.tensor([True, False]),
        "none": torch.zeros(0, 3),
    }
    save_file(values, tmp_path / "a.safetensors")
    stored = stored_tensors([tmp_path / "a.safetensors"])
    for name, value in values.items():
        assert torch.equal(read_whole(stored[name]), value)
    part = torch.empty(3, 4)
    copy_rows(stored["low"], part, start=1)
    assert torch.equal(part, values["low"][1:4].float())
    save_file({"wide": values["wide"].clone(), "low": values["low"] + 1}, tmp_path / "b.safetensors")
    others = stored_tensors([tmp_path / "b.safetensors"])
    assert equal_in(stored["wide"], others["wide"], torch.float32)
    assert not equal_in(stored["low"], others["low"], torch.float32)
    assert stored_tensors([tmp_path / "a.safetensors", tmp_path / "b.safetensors"])["low"] == others["low"]


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    file = tmp_path / "a.safetensors"
    save_file({"a": torch.ones(100)}, file)
    stored = stored_tensors([file])["a"]
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ConfigError, match=r"a\.safetensors is shorter than its header says: copy"):
        read_whole(stored)
    file.write_bytes(b"no")
    with pytest.raises(ConfigError, match="header cannot be read"):
        stored_tensors([file])
