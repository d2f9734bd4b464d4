"""Pure functions of tensors: what a step computes. No I/O, clock, randomness or settings."""
