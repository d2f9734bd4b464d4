"""Values that depend on the step only: learning rate and seed. Nothing to checkpoint."""

import hashlib
import math


def learning_rate(step: int, *, peak: float, warmup_steps: int, max_steps: int, schedule: str) -> float:
    """Learning rate of optimizer step `step`, from 1.

    Linear warmup to `peak`, then constant, or down to 0 at `max_steps`.
    """
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


def step_seed(seed: int, step: int) -> int:
    """Seed of the generators in one step: a replayed step draws the same numbers."""
    return int.from_bytes(hashlib.blake2b(f"{seed}|{step}".encode(), digest_size=8).digest(), "little") >> 1
