"""Reads from torch what the trainer runs on."""

import torch

from headrace.services.trainer.throughput.peak import TERA, peak_flops
from headrace.services.trainer.throughput.speed import Hardware
from headrace.wire.telemetry.logs import get_logger

log = get_logger("trainer.throughput")


def read_hardware(device: torch.device, ranks: int, *, peak_tflops: float) -> Hardware:
    """Hardware of `ranks` ranks on devices like this one; a `peak_tflops` above 0 overrides the table of names."""
    if device.type != "cuda":
        return Hardware()
    name = torch.cuda.get_device_name(device)
    peak = peak_tflops * TERA or peak_flops(name)
    if peak is None:
        log.info("peak_unknown", gpu=name, effect="no MFU is reported", way_out="set trainer.peak_tflops")
    return Hardware(gpus=ranks, peak_flops=peak)
