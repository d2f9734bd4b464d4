"""The history checker: proves offline that a run lost nothing, trained nothing twice, trusted no unproven weights."""

from headrace.history.check import check_run
from headrace.history.verdict import Groups, Verdict

__all__ = ["Groups", "Verdict", "check_run"]
