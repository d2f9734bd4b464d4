"""What a trainer process does: `rl`, the loop of the run, and `sft`, a short supervised stage before it."""
