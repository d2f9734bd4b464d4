"""Further machines of a run: parts of its trainer, and replicas of its services."""
