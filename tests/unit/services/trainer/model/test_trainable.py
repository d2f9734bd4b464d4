"""`model.trainable`: the named weights have gradients and optimizer state, the others neither."""

import pytest
import torch

from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.backends.single import SingleDevice
from headrace.services.trainer.model.loading import load_policy
from headrace.wire.errors import ConfigError
from tests.unit.services.trainer.builders import tiny_folder

LAYERS = 2


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("model") / "model", layers=LAYERS)


def load(source, trained):
    return load_policy(source, device="cpu", forward_dtype=torch.float32, trained=trained)


def of_layer(number):
    return lambda name: f".layers.{number}." in name


@pytest.mark.parametrize(
    ("trained", "has"),
    [
        ("layers 1-", of_layer(1)),
        ("layers 0-0", of_layer(0)),
        ("layers 0-1", lambda name: ".layers." in name),
        ("layers 0, norms", lambda name: of_layer(0)(name) or "norm" in name),
        ("embeddings", lambda name: "embed_tokens" in name),
        ("head", lambda name: "embed_tokens" in name),  # they are tied
    ],
)
def test_the_named_weights_alone_have_gradients(source, trained, has):
    found = {name: weight.requires_grad for name, weight in load(source, trained).named_weights()}
    assert found == {name: has(name) for name in found} and True in found.values() and False in found.values()


def test_frozen_weights_have_no_state_and_keep_their_bits(source):
    backend = SingleDevice(load(source, "layers 1-"), options=BackendOptions())
    before = {name: weight.clone() for name, weight in backend.whole_weights()}
    ids = torch.tensor([[3, 7, 11, 2, 5, 19]])
    places = torch.arange(5)
    backend.backward(-backend(ids[:, :-1], 0 * places, places, ids[0, 1:], torch.ones(5), 4).logprobs.mean())
    backend.apply(learning_rate=0.1, grad_clip=1.0)
    state, after = dict(backend.optimizer_rows()), dict(backend.whole_weights())
    assert {name for name in after if not torch.equal(after[name], before[name])} == {
        name for name in after if ".layers.1." in name
    }
    assert {name.rpartition("/")[0] for name in state} == {name for name in after if ".layers.1." in name}


@pytest.mark.parametrize("trained", ["layers 2", "layers 1-2", "layers 1-0"])
def test_layers_that_the_model_lacks_are_refused(source, trained):
    with pytest.raises(ConfigError, match="layers 0 to 1"):
        load(source, trained)
