"""Tokens a second and MFU of a step."""

import torch

from headrace.services.trainer.throughput.hardware import read_hardware
from headrace.services.trainer.throughput.speed import Hardware, step_speed

LINE = {
    "interval_seconds": 10.0,
    "seconds": 8.0,
    "train_seconds": 4.0,
    "trained_tokens": 2000.0,
    "generated_tokens": 3000,
    "model_flops": 8e15,
}


def test_on_gpus_every_speed_metric_is_reported():
    # 8e15 FLOPs in 10 s on 4 GPUs of 1e15 FLOP/s are a fifth of what they can; in the 4 s of training a half.
    found = step_speed(LINE, Hardware(gpus=4, peak_flops=1e15), rollout_gpus=12)
    assert found == {
        "trained_tokens_per_second": 200.0,
        "trained_tokens_per_second_per_gpu": 50.0,
        "generated_tokens_per_second": 300.0,
        "generated_tokens_per_second_per_gpu": 25.0,
        "mfu": 0.2,
        "mfu_train": 0.5,
    }


def test_on_a_cpu_neither_mfu_nor_per_gpu_speed_is_reported():
    hardware = read_hardware(torch.device("cpu"), 2, peak_tflops=100.0)
    assert step_speed(LINE, hardware) == {"trained_tokens_per_second": 200.0, "generated_tokens_per_second": 300.0}
