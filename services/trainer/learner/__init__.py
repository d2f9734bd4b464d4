"""All models of the RL stage on one rank, and the commands by which rank 0 leads the others."""
