"""The stock of this example as a taskset of `verifiers`. It does not import Headrace."""

from stock.taskset import StockTaskset

__all__ = ["StockTaskset"]
