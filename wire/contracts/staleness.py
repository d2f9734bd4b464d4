"""Policies for rollouts that lag behind the weights: the values of `run.stale`."""

from typing import Literal

StalePolicy = Literal["wait", "late", "mask", "drop"]
"""Values of the setting `run.stale`, which `headrace.wire.config.settings.RunTable.stale` describes."""
