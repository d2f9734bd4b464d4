"""A checkpoint of another optimizer: its weights are taken, its moments are not."""

import itertools

import pytest
from structlog.testing import capture_logs

from headrace.services.trainer.model.optimizers import OPTIMIZERS, kind_of, state_keys
from tests.unit.services.trainer.model.test_optimizers import make, step


def trained(name):
    backend = make(name)
    for _ in range(3):
        step(backend)
    weights = {key: value.clone() for key, value in backend.whole_weights()}
    return weights, {key: value.clone() for key, value in dict(backend.optimizer_rows()).items()}


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(OPTIMIZERS, 2)))
def test_moments_of_another_optimizer_are_dropped_with_a_warning(before, after):
    weights, state = trained(before)
    resumed, fresh = make(after, seed=4), make(after, seed=5)
    step(resumed)
    with capture_logs() as logs:
        resumed.load(weights, state)
    (line,) = [entry for entry in logs if entry["event"] == "optimizer_state_dropped"]
    assert line["log_level"] == "warning" and (line["saved"], line["now"]) == (before, after)
    fresh.load(weights, {})
    # In the same bits: nothing of the old moments is left.
    assert [step(resumed) for _ in range(3)] == [step(fresh) for _ in range(3)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_known_state_keys_match_those_created_by_a_step(name):
    backend = make(name)
    step(backend)
    found = [(opt, w) for opt in backend._optimizers for group in opt.param_groups for w in group["params"]]
    assert found
    for optimizer, weight in found:
        assert state_keys(optimizer, weight) == optimizer.state[weight].keys()
    assert kind_of(key.rpartition("/")[2] for key in dict(backend.optimizer_rows())) == name
