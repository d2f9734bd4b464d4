"""What `headrace check` must have found of a run that was disturbed."""

from collections.abc import Mapping
from typing import Any


def lost_and_doubled(groups: Mapping[str, Any], steps: int) -> tuple[int, int]:
    """Groups that were issued and neither trained nor dropped nor open, and those trained beyond four a step."""
    lost = groups["issued"] - groups["trained"] - sum(groups["dropped"].values()) - groups["open"]
    return lost, max(0, groups["trained"] - steps * 4)
