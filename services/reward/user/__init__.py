"""The user's own reward functions, as they were written for Headrace, TRL, verl or verifiers; all run in workers."""
