"""The learning rate as a function of the step: nothing to checkpoint."""

import math


def learning_rate(step: int, *, peak: float, warmup_steps: int, max_steps: int, schedule: str) -> float:
    """Of optimizer step `step`, from 1: linear warmup to `peak`, then constant, or down to 0 at `max_steps`."""
    if step <= warmup_steps:
        return peak * step / warmup_steps
    done = (step - warmup_steps - 1) / max(max_steps - warmup_steps, 1)
    left = max(0.0, 1.0 - done)
    match schedule:
        case "constant":
            return peak
        case "linear":
            return peak * left
        case "cosine":
            return peak * (1 - math.cos(math.pi * left)) / 2
        case _:
            raise ValueError(f"schedule {schedule!r} is not one of constant, linear, cosine")
