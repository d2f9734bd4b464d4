"""One device, FSDP2 and DeepSpeed over several ranks: the same gradients, losses and checkpoints."""

import itertools
import os
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from headrace.services.trainer.algorithms.products import speed_up
from headrace.services.trainer.backends.single import SingleDevice
from tests.integration.trainer.backends import cases, work
from tests.integration.trainer.backends.rank import read

pytest.importorskip("deepspeed", reason="the extra `deepspeed` is not installed")
pytestmark = pytest.mark.timeout(400)
WORLD_S = 180
"""A quiet machine takes 20 s for one."""


def alone(module, options):
    return SingleDevice(module, options=options)


def run_world(folder, names, size, context=1):
    words = [str(folder), ",".join(names), str(size), str(context)]
    command = [sys.executable, "-m", "tests.integration.trainer.backends.rank", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WORLD_S)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """What one device makes of a case."""
    folder = tmp_path_factory.mktemp("single")
    found = {}

    def run(case, **kind):
        key = (case.__name__, str(kind))
        if key not in found:
            found[key] = case(work.options("single"), **kind)(alone, folder)
        return found[key]

    return run


class World:
    """What two ranks made of their cases, all of them in one life."""

    def __init__(self, folder):
        self.folder = folder
        run_world(folder, [name for name in cases.CASES if not name.startswith(("family", "divided", "saved"))], 2)

    def two(self, name):
        """Numbers and tensors of a case."""
        return read(self.folder, name, 2)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"))


def some(kind):
    """Cases of one kind, each of another backend."""
    return pytest.mark.parametrize("name", [name for name in cases.CASES if name.endswith(f"-{kind}")])


def assert_close(found, expected, rtol):
    """No difference above `rtol` of the largest value of its kind (what stands before the name's first slash)."""
    assert found.keys() == expected.keys()
    kinds = {}
    for name in expected:
        kinds.setdefault(name.partition("/")[0] if "/" in name else "", []).append(name)
    for kind, names in kinds.items():
        largest = max(float(expected[name].abs().max()) for name in names)
        gap = max(float((found[name] - expected[name]).abs().max()) for name in names)
        assert largest > 0 and gap <= rtol * largest, (kind, gap, largest)


def assert_same_numbers(found, expected, rtol=1e-5):
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=rtol, atol=1e-6)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_one_device_has_the_same_gradient_for_every_micro_batch_size(single, dtype, rtol):
    _, found = single(cases.gradients, dtype=dtype)
    assert next(iter(found.values())).dtype == dtype
    sizes = [
        {name.partition("/")[2]: value for name, value in found.items() if name.startswith(f"{size}/")}
        for size in cases.SIZES
    ]
    for part in sizes[:-1]:
        assert_close(part, sizes[-1], rtol)


@some("gradients")
def test_two_ranks_have_the_gradient_of_one_device_for_every_micro_batch_size(worlds, single, name):
    _, found = worlds.two(name)
    assert_close(found, single(cases.gradients, dtype=torch.float32)[1], 1e-5)


@some("offline")
def test_ranks_tell_the_work_of_one_device_and_the_largest_peak_of_any(worlds, single, name):
    told, alone = worlds.two(name)[0]["told"], single(cases.offline)[0]["told"]
    for found, one in zip(told, alone, strict=True):
        assert (found.pop("rising"), found.pop("falling")) == (11.0, 100.0)
        assert (one["rising"], one["falling"]) == (10.0, 100.0) and "unknown" not in found.keys() | one.keys()
        assert found["model_flops"] == one["model_flops"] > 0 and found["trained_tokens"] == one["trained_tokens"]
        assert found == pytest.approx({key: one[key] for key in found}, rel=1e-4)


STEPS = ["fsdp2-steps", "fsdp2-offloaded", "zero3-steps"]


@pytest.mark.parametrize("name", STEPS)
def test_ranks_take_the_steps_of_one_device(worlds, single, name):
    numbers, tensors = worlds.two(name)
    expected_numbers, expected = single(cases.steps, tied=False, checkpointing=True)
    assert_same_numbers(numbers["seen"], expected_numbers["seen"], rtol=1e-4)
    assert_close(tensors, expected, 1e-4)


@pytest.mark.parametrize(
    ("name", "lora"),
    [
        ("fsdp2-lora", work.LORA),
        ("fsdp2-qlora", work.QLORA),
        ("zero2-qlora", work.QLORA),
    ],
)
def test_ranks_train_and_merge_adapters_like_one_device(worlds, single, name, lora):
    numbers, tensors = worlds.two(name)
    expected_numbers, expected = single(cases.steps, lora=lora)
    assert_same_numbers(numbers["seen"], expected_numbers["seen"], rtol=1e-4)
    assert_close(tensors, expected, 1e-4)


def test_ranks_train_part_of_the_layers_like_one_device_and_leave_the_rest_in_its_bits(worlds, single):
    numbers, tensors = worlds.two("fsdp2-part")
    expected_numbers, expected = single(cases.steps, trained="layers 1-, norms")
    assert_same_numbers(numbers["seen"], expected_numbers["seen"], rtol=1e-4)
    assert_close(tensors, expected, 1e-4)
    begun = {f"weights/{name}": value for name, value in work.policy().named_weights()}
    changed = {name for name, value in begun.items() if not torch.equal(value, tensors[name])}
    assert changed == {name for name in begun if ".layers.1." in name or "norm" in name}


@some("mishaps")
def test_an_aborted_or_non_finite_step_changes_nothing_on_any_rank(worlds, single, name):
    numbers, tensors = worlds.two(name)
    expected_numbers, expected = single(cases.mishaps, lora=work.LORA)
    assert numbers["unchanged"] and not numbers["finite"]
    assert_same_numbers(numbers["seen"], expected_numbers["seen"], rtol=1e-4)
    assert_close(tensors, expected, 1e-4)


def test_a_frozen_model_is_sharded_and_takes_other_weights(worlds, single):
    numbers, _ = worlds.two("fsdp2-frozen")
    expected, _ = single(cases.frozen)
    assert_same_numbers(numbers["seen"], expected["seen"])
    assert all(abs(one - other) > 1e-3 for one, other in itertools.pairwise(numbers["seen"]))


@some("save")
def test_one_device_resumes_from_a_checkpoint_of_two_ranks(worlds, name):
    saved_numbers, saved = worlds.two(name)
    numbers, tensors = cases.resume(work.options("single"), name.partition("-")[0])(alone, worlds.folder)
    assert_same_numbers(numbers["seen"], saved_numbers["seen"])
    assert_close(tensors, saved, 1e-5)


@some("values")
def test_a_critic_beside_a_policy_takes_the_steps_of_one_device(worlds, single, name):
    numbers, tensors = worlds.two(name)
    expected_numbers, expected = single(cases.values)
    assert_same_numbers(numbers["seen"], expected_numbers["seen"], rtol=1e-4)
    assert_close(tensors, expected, 1e-4)


@some("experts")
def test_ranks_publish_experts_like_one_device_in_checkpoint_layout(worlds, single, name, tmp_path):
    numbers, tensors = worlds.two(name)
    expected_numbers, expected = single(cases.publications)
    assert_same_numbers(numbers["seen"], expected_numbers["seen"], rtol=1e-4)
    work.experts().model.bfloat16().save_pretrained(tmp_path)
    written = load_file(tmp_path / "model.safetensors")
    assert {key: each.shape for key, each in tensors.items()} == {key: each.shape for key, each in written.items()}
    assert {each.dtype for each in tensors.values()} == {torch.bfloat16, torch.float32}
    assert sum(not torch.equal(tensors[key], written[key]) for key in written) > len(written) / 2, (
        "two steps were taken"
    )
    for key, each in expected.items():
        assert tensors[key].dtype == each.dtype
        torch.testing.assert_close(tensors[key].float(), each.float(), rtol=0.01, atol=1e-3)


@some("bfloat16")
def test_a_forward_pass_in_bfloat16_trains_float32_weights_nearly_alike(worlds, single, name):
    numbers, tensors = worlds.two(name)
    expected, _ = single(cases.steps, dtype=torch.bfloat16)
    assert all(tensor.dtype == torch.float32 for tensor in tensors.values())
    torch.testing.assert_close(torch.tensor(numbers["seen"]), torch.tensor(expected["seen"]), rtol=0.05, atol=0.02)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the compiler, about its own doings
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_layers_take_the_same_step_and_are_no_longer_sped_up(tmp_path):
    module = work.policy()
    speed_up(module.model)
    compiled, plain = (
        SingleDevice(module, options=work.options("single", compiled=True)),
        alone(work.policy(), work.options("single")),
    )
    found, expected = (work.gradient(backend, 16, tmp_path) for backend in (compiled, plain))
    assert_close(found, expected, 1e-5)


def test_muon_on_shards_takes_the_steps_of_one_device(worlds, tmp_path):
    numbers, tensors = worlds.two("fsdp2-muon")
    expected_numbers, expected = cases.steps(work.options("single", optimizer=work.MUON))(alone, tmp_path)
    # It orthogonalizes in bfloat16.
    assert_same_numbers(numbers["seen"], expected_numbers["seen"], rtol=1e-3)
    assert_close(tensors, expected, 5e-3)


@some("packing")
def test_sharded_models_are_asked_whether_packed_examples_see_each_other(worlds, single, name):
    numbers, _ = worlds.two(name)
    expected, _ = single(cases.packing)
    assert numbers["joined"] == expected["joined"] == [False, False]
    assert len(numbers["reasons"]) == 2
    for found, alone in zip(numbers["reasons"], expected["reasons"], strict=True):
        assert found.partition(":")[0] == alone.partition(":")[0] == "sft.pack_tokens" and "pack_tokens = 0" in found
    assert "Install `causal_conv1d`" in numbers["reasons"][1]


def test_incompatible_backend_options_are_rejected_with_the_reason(worlds):
    reasons, _ = worlds.two("refusals")
    eight_bit, muon, one_device, four_bit, compiled = reasons
    assert "adamw_8bit" in eight_bit and "trainer.ranks = 1" in eight_bit
    assert "muon" in muon and "trainer.backend = 'fsdp2'" in muon
    assert "trainer.ranks is 2" in one_device
    assert "model.lora.quantize" in four_bit and "trainer.zero_stage = 2" in four_bit
    assert "trainer.compile" in compiled and "trainer.zero_stage = 2" in compiled
