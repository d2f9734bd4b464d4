"""What turns pytest into the gate: parts of the suite, progress, seconds of each file, repeated failures."""
