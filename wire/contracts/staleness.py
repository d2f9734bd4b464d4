"""What becomes of rollouts that the weights run ahead of: the words of `run.stale`."""

from typing import Literal

StalePolicy = Literal["wait", "mask", "drop"]
"""Values of the setting `run.stale`, which `headrace.wire.config.settings.RunTable.stale` describes."""
