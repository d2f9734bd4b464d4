"""Context parallelism: ranks that share the tokens of a row take the steps of one device."""

import functools

import pytest

from tests.integration.trainer.backends import cases, work
from tests.integration.trainer.backends.rank import read
from tests.integration.trainer.backends.test_backends import alone, assert_close, assert_same_numbers, run_world

pytestmark = pytest.mark.timeout(400)
SHARED = ("fsdp2-steps", "fsdp2-lora", "fsdp2-values", "fsdp2-frozen", "fsdp2-offline", "fsdp2-save")
FAMILIES = [f"family-{name}" for name in cases.FAMILIES]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two ranks that share all rows."""
    folder = tmp_path_factory.mktemp("pair")
    run_world(folder, [*FAMILIES, *SHARED, "divided", "saved"], 2, context=2)
    return folder


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """What one device makes of a family."""

    @functools.cache
    def run(name):
        kind, more = cases.FAMILIES[name]
        return cases.family_steps(work.options("single"), kind, **more)(alone, tmp_path_factory.mktemp(name))

    return run


def assert_same(found, expected):
    (numbers, tensors), (expected_numbers, expected) = found, expected
    # In float64, but for the routers of experts.
    for part, tolerance in (("gradient/", 1e-5), ("weights/", 1e-6)):
        assert_close(*({key: of[key] for key in of if key.startswith(part)} for of in (tensors, expected)), tolerance)
    assert_same_numbers(numbers["seen"], expected_numbers["seen"], rtol=1e-6)


@pytest.mark.parametrize("name", cases.FAMILIES)
def test_two_ranks_share_rows_and_take_the_steps_of_one_device(pair, one, name):
    assert_same(read(pair, f"family-{name}", 2), one(name))


@pytest.mark.parametrize(("context", "names"), [(2, ("dense", "mixture")), (4, ("window", "latent"))])
def test_four_ranks_share_rows_in_pairs_or_all_and_take_the_steps_of_one_device(tmp_path, one, context, names):
    run_world(tmp_path, [f"family-{name}" for name in names], 4, context=context)
    for name in names:
        assert_same(read(tmp_path, f"family-{name}", 4), one(name))


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("fsdp2-steps", lambda options: cases.steps(options, tied=False, checkpointing=True)),
        ("fsdp2-lora", lambda options: cases.steps(options, lora=work.LORA)),
        ("fsdp2-values", cases.values),
        ("fsdp2-frozen", cases.frozen),
    ],
)
def test_checkpointing_adapters_critics_and_references_share_rows_too(pair, tmp_path, name, case):
    numbers, tensors = read(pair, name, 2)
    expected_numbers, expected = case(work.options("single"))(alone, tmp_path)
    assert_same_numbers(numbers["seen"], expected_numbers["seen"], rtol=1e-4)
    if expected:
        assert_close(tensors, expected, 1e-4)


def test_work_and_losses_of_examples_are_counted_once(pair, tmp_path):
    told, expected = (
        read(pair, "fsdp2-offline", 2)[0]["told"],
        cases.offline(work.options("single"))(alone, tmp_path)[0]["told"],
    )
    for found, one in zip(told, expected, strict=True):
        assert (found["rising"], found["falling"]) == (11.0, 100.0)
        same = found.keys() - {"rising", "falling"}
        assert {key: found[key] for key in same} == pytest.approx({key: one[key] for key in same}, rel=1e-4)


def test_one_device_resumes_from_a_checkpoint_of_ranks_that_share_rows(pair):
    saved_numbers, saved = read(pair, "fsdp2-save", 2)
    numbers, tensors = cases.resume(work.options("single"), "fsdp2")(alone, pair)
    assert_same_numbers(numbers["seen"], saved_numbers["seen"])
    assert_close(tensors, saved, 1e-5)


def test_models_that_pass_on_more_than_attention_are_refused(pair):
    told = read(pair, "divided", 2)[0]
    linear, state_space, soft_capped, by_length, critic = told["reasons"]
    assert "dynamic depends on the length" in by_length and "qwen3_next models pass on" in critic
    assert "qwen3_next models pass on" in linear and "Set trainer.cp = 1" in linear
    assert "0 attention heads" in state_space or "pass on" in state_space
    assert "softcap" in soft_capped and told["left"] == []


def test_what_a_row_of_16k_tokens_keeps_for_backward_halves_on_two_ranks(pair, tmp_path):
    numbers, expected = read(pair, "saved", 2)[0], cases.saved(work.options("single"))(alone, tmp_path)[0]
    assert_same_numbers(numbers["seen"], expected["seen"])
    assert 0.45 * expected["bytes"] < numbers["bytes"] < 0.55 * expected["bytes"]
