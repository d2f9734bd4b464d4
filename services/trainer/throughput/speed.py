"""How fast a step was: tokens a second, of the run and of one GPU, and its share of the GPUs' peak. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.wire.rundir.metrics import GENERATED, MFU, MFU_TRAIN, PER_GPU, TRAINED


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What the trainer runs on."""

    gpus: int = 0
    """Ranks on GPUs, one each; 0 = on CPUs."""
    peak_flops: float | None = None
    """FLOP/s of one GPU; None = unknown."""


def step_speed(line: Mapping[str, Any], hardware: Hardware, *, rollout_gpus: int = 0) -> dict[str, float]:
    """Computes speeds from the numbers of a step in metrics.jsonl; what cannot be computed is left out.

    Over `interval_seconds`: from the end of one step to the end of the next, including the wait for the batch. A stage
    without it is timed by `seconds`. `mfu_train` covers the training alone. `rollout_gpus`: those of the live replicas;
    0 = on CPUs, or unknown.
    """
    seconds = float(line.get("interval_seconds", line["seconds"]))
    found: dict[str, float] = {}
    for key, tokens, gpus in (
        (TRAINED, line.get("trained_tokens"), hardware.gpus),
        (GENERATED, line.get("generated_tokens"), rollout_gpus),
    ):
        if tokens is None or seconds <= 0:
            continue
        found[key] = tokens / seconds
        if gpus:
            found[key + PER_GPU] = tokens / seconds / gpus
    if hardware.gpus and hardware.peak_flops and "model_flops" in line:
        peak = hardware.gpus * hardware.peak_flops
        for key, span in ((MFU, seconds), (MFU_TRAIN, line.get("train_seconds"))):
            if span:
                found[key] = line["model_flops"] / (span * peak)
    return found
