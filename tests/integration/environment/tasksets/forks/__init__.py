"""A taskset whose own harness makes more of a conversation than one branch, and tells what `verifiers` sees of it."""

from forks.harness import ForksHarness
from forks.taskset import ForksTaskset

__all__ = ["ForksHarness", "ForksTaskset"]
