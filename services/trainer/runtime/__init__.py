"""Everything that runs beside the training step: streams, reports, health, turns on the GPUs, the stop."""
