"""A taskset of `verifiers` with a server of tools that its tasks share."""

from calc.taskset import CalcTaskset

__all__ = ["CalcTaskset"]
