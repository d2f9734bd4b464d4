"""How fast a step was: tokens a second, of the run and of one GPU, and its share of the GPUs' peak. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TRAINED, GENERATED = "trained_tokens_per_second", "generated_tokens_per_second"
PER_GPU = "_per_gpu"
MFU, MFU_TRAIN = "mfu", "mfu_train"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What the trainer runs on."""

    gpus: int = 0
    """Ranks on GPUs, one each; 0 = on CPUs."""
    peak_flops: float | None = None
    """Of one GPU: FLOP/s; None = unknown."""


def step_speed(line: Mapping[str, Any], hardware: Hardware, *, rollout_gpus: int = 0) -> dict[str, float]:
    """Of the numbers of a step as metrics.jsonl has them; what cannot be told is left out.

    Over `interval_seconds`: from the end of one step to the end of the next, the wait for the batch included. A stage
    without it is timed by `seconds`. `mfu_train` is taken over the training alone. `rollout_gpus`: those of the
    replicas that live; 0 = on CPUs, or unknown.
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
