"""Parameters of which `make test` keeps some; the others are variants of the same claim, for `make test-all`."""

from collections.abc import Collection, Iterable

import pytest


def keep(kept: Collection[object], values: Iterable[object]) -> list[object]:
    """All `values`, those that are not in `kept` marked `long`; raises ValueError if one of `kept` is none of them."""
    found = list(values)
    if missing := [one for one in kept if one not in found]:
        raise ValueError(f"{missing} are not among {found}")
    return [pytest.param(one, marks=() if one in kept else pytest.mark.long) for one in found]
