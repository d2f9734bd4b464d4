"""Training alone, from batches that a run has journaled."""
