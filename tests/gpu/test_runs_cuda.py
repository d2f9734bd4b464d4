"""Whole runs with trainer and torch engine on one GPU, as a user starts them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from headrace.wire.rundir.events import read_events
from tests.armed import arm
from tests.e2e.harness import TinyRun
from tests.gpu.device import needs_cuda, on_device

pytestmark = [*on_device, needs_cuda, pytest.mark.timeout(240)]
STEPS = 6
Start = Callable[..., TinyRun]
TURNS = ("--rollout.gpu-sharing", "turns")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    runs: list[TinyRun] = []

    def begin(*arguments: str, dies_in: int = 0) -> TinyRun:
        runs.append(TinyRun(tmp_path / f"run-{len(runs)}", steps=STEPS, replicas=1))
        if dies_in:
            runs[-1].environment = arm(tmp_path / "failpoints", "trainer.step.after_step", dies_in - 1)
        runs[-1].start("--run.device", "cuda", *arguments)
        return runs[-1]

    yield begin
    for run in runs:
        run.close()


def finished(run: TinyRun) -> str:
    """sha256 of the final weights of a run that ends in order."""
    assert run.finish()["steps"] == STEPS
    return str(run.check()["weights_sha256"])


def test_a_run_on_the_gpu_ends_in_order_and_measures_the_device(start: Start) -> None:
    run = start()
    line = run.finish()
    assert (line["steps"], line["versions_committed"]) == (STEPS, {"rollout-0": STEPS + 1}), line
    run.check()
    last = run.metrics()[-1]
    assert last["peak_device_memory_bytes"] > 0, last


def test_turns_and_kills_change_no_bit(start: Start) -> None:
    plain, killed = start("--model.dtype", "float32"), start("--model.dtype", "float32", *TURNS, dies_in=4)
    killed.wait_for_step(2)
    killed.kill("rollout-0")
    assert finished(killed) == finished(plain)
    events = {event["event"] for event in read_events(killed.run_dir)}
    assert {"engine_asleep", "engine_awake"} <= events


@pytest.mark.timeout(600)
def test_a_killed_compiled_run_ends_with_the_weights_of_an_undisturbed_one(start: Start) -> None:
    """One after the other: the second finds the kernels of the first. Others might differ in the last bits."""
    options = ("--model.dtype", "float32", "--trainer.compile", "true")
    expected = finished(start(*options))
    assert finished(start(*options, *TURNS, dies_in=4)) == expected


VARIANTS = {
    "fsdp2": ("--trainer.backend", "fsdp2"),
    "fsdp2, offloaded": ("--trainer.backend", "fsdp2", "--trainer.cpu-offload", "true"),
    "deepspeed": ("--trainer.backend", "deepspeed"),
    "critic": ("--algorithm.name", "ppo"),
    "lora": ("--model.lora.rank", "4"),
    "qlora": ("--model.lora.rank", "4", "--model.lora.quantize", "nf4"),
    "8-bit moments": ("--trainer.optimizer", "adamw_8bit"),
    "muon": ("--trainer.optimizer", "muon"),
    "compiled": ("--trainer.compile", "true"),
    "float32 head, checkpointing": ("--model.fp32-head", "true", "--trainer.gradient-checkpointing", "true"),
}


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="not here: needs two GPUs")
def test_two_gpus_that_share_rows_end_in_order(start: Start) -> None:
    finished(start("--trainer.ranks", "2", "--trainer.cp", "2"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_way_to_train_ends_in_order_on_the_gpu(start: Start, variant: str) -> None:
    finished(start(*VARIANTS[variant]))
