"""The history checker: verifies offline that a run lost no group, trained none twice and used no unproven weights."""

from headrace.inspect.history.check import check_run
from headrace.inspect.history.receipts import checked_receipt
from headrace.inspect.history.verdict import Groups, HistoryVerdict

__all__ = ["Groups", "HistoryVerdict", "check_run", "checked_receipt"]
