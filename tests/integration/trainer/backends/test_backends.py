"""One device, FSDP2 and DeepSpeed over several ranks: the same gradients, losses and checkpoints."""

import os
import subprocess
import sys

import pytest
import torch

from services.trainer.backends.single import SingleDevice
from tests.integration.trainer.backends import cases, work
from tests.integration.trainer.backends.rank import read

RTOL = 1e-5
"""Of the largest value of a kind; the sums are in float32, in other orders."""


def alone(module, options):
    return SingleDevice(module, options=options)


def run_world(folder, names, size):
    command = [sys.executable, "-m", "tests.integration.trainer.backends.rank", str(folder), ",".join(names), str(size)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
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


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("worlds")
    fsdp2 = [name for name in cases.CASES if name.startswith("fsdp2")]
    run_world(folder, fsdp2, 2)
    run_world(folder, ["fsdp2-gradients", "fsdp2-resume"], 3)
    return folder


def assert_close(found, expected, rtol=RTOL):
    assert found.keys() == expected.keys()
    kinds = {name.partition("/")[0] if "/" in name else "" for name in expected}
    for kind in kinds:
        names = [name for name in expected if (name.partition("/")[0] if "/" in name else "") == kind]
        largest = max(float(expected[name].abs().max()) for name in names)
        gap = max(float((found[name] - expected[name]).abs().max()) for name in names)
        assert gap <= rtol * largest, (kind, gap, largest)


def test_one_device_has_the_same_gradient_for_every_micro_batch_size(single):
    _, found = single(cases.gradients)
    whole = {name: value for name, value in found.items() if name.startswith("16/")}
    for size in (1, 3):
        assert_close(
            {f"16/{name.partition('/')[2]}": v for name, v in found.items() if name.startswith(f"{size}/")}, whole
        )


def test_in_float64_they_differ_by_a_ten_billionth_at_most(single):
    _, found = single(cases.gradients, dtype=torch.float64)
    whole = {name: value for name, value in found.items() if name.startswith("16/")}
    assert next(iter(whole.values())).dtype == torch.float64
    for size in (1, 3):
        parts = {f"16/{name.partition('/')[2]}": v for name, v in found.items() if name.startswith(f"{size}/")}
        assert_close(parts, whole, rtol=1e-10)


@pytest.mark.parametrize("size", [2, 3])
def test_fsdp2_has_the_gradient_of_one_device_for_every_micro_batch_size(worlds, single, size):
    _, found = read(worlds, "fsdp2-gradients", size)
    assert_close(found, single(cases.gradients)[1])


@pytest.mark.parametrize(
    ("name", "kind"), [("fsdp2-steps", {"tied": False, "checkpointing": True}), ("fsdp2-lora", {"lora": work.LORA})]
)
def test_fsdp2_takes_the_steps_of_one_device(worlds, single, name, kind):
    numbers, tensors = read(worlds, name, 2)
    expected_numbers, expected = single(cases.steps, **kind)
    torch.testing.assert_close(
        torch.tensor(numbers["seen"]), torch.tensor(expected_numbers["seen"]), rtol=1e-4, atol=1e-6
    )
    assert_close(tensors, expected, rtol=1e-4)


@pytest.mark.parametrize(("name", "size"), [("fsdp2-resume", 2), ("fsdp2-resume", 3)])
def test_a_checkpoint_of_two_ranks_goes_on_with_any_number(worlds, name, size):
    saved_numbers, saved = read(worlds, "fsdp2-save", 2)
    numbers, tensors = read(worlds, name, size)
    torch.testing.assert_close(torch.tensor(numbers["seen"]), torch.tensor(saved_numbers["seen"]), rtol=1e-5, atol=1e-7)
    assert_close(tensors, saved)


def test_one_device_goes_on_from_a_checkpoint_of_two_ranks(worlds):
    saved_numbers, saved = read(worlds, "fsdp2-save", 2)
    numbers, tensors = cases.resume(work.options("single"))(alone, worlds)
    torch.testing.assert_close(torch.tensor(numbers["seen"]), torch.tensor(saved_numbers["seen"]), rtol=1e-5, atol=1e-7)
    assert_close(tensors, saved)
