"""Control flow: issues prompts, bounds staleness, coordinates publications, keeps the run's state. Needs no torch."""
