"""Packing changes the rows and nothing else: every loss and every gradient stays."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.trainer.backends.choice import make_backend
from headrace.services.trainer.backends.options import BackendOptions
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.stages.offline.packing import pack
from headrace.services.trainer.stages.offline.sft import Supervised
from tests.unit.services.trainer.builders import tiny_model
from tests.unit.services.trainer.stages.stage_builders import examples


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(1, 40))
def test_every_example_is_packed_once_and_no_row_is_over_full(lengths, capacity):
    rows = pack(lengths, capacity=capacity)
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    for row in rows:
        assert len(row) == 1 or sum(lengths[number] for number in row) <= capacity
    # First fit: no two rows would fit into one.
    sums = sorted(sum(lengths[number] for number in row) for row in rows)
    assert len(sums) < 2 or sums[0] + sums[1] > capacity


def policy(attention="sdpa"):
    model = tiny_model(layers=2).double()
    model.set_attn_implementation(attention)
    return Policy(model, forward_dtype=torch.float64)


def gradients(found, units):
    backend = make_backend(found, Ranks.alone(), torch.device("cpu"), BackendOptions())
    sums = Supervised(pack_tokens=0, logprob_chunk=7).sums(backend, units)
    sums["loss"].backward()
    return sums["loss"].item(), {name: weight.grad.clone() for name, weight in found.named_weights()}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_rows_have_the_loss_and_gradient_of_rows_of_their_own(attention):
    given_examples = examples(23, seed=4, turns=True)
    alone = [(example,) for example in given_examples]
    packed = Supervised(pack_tokens=24, logprob_chunk=7).units(given_examples)
    assert max(len(row) for row in packed) >= 3
    loss, gradient = gradients(policy(attention), alone)
    packed_loss, packed_gradient = gradients(policy(attention), packed)
    # The eager softmax of transformers is float32, whatever the model is.
    exact = attention == "sdpa"
    assert packed_loss == pytest.approx(loss, rel=1e-12 if exact else 1e-7)
    largest = max(one.abs().max() for one in gradient.values())
    for name, one in gradient.items():
        assert (packed_gradient[name] - one).abs().max() <= (1e-10 if exact else 1e-6) * largest
