"""What a trainer process does: `rl`, the loop of the run; the stages on given examples; and `replay`."""
