"""Thinned curves keep their extremes, their ends and their gaps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.services.orchestrator.dashboard.readers.thin import thin


@given(st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(float("nan"))), max_size=300), st.integers(4, 40))
def test_downsampling_bounds_the_points_and_keeps_extremes_and_ends(values: list[float], points: int) -> None:
    array = np.array(values, np.float64)
    kept = thin(array, points)
    assert len(kept) <= max(points, 0) and list(kept) == sorted(set(kept.tolist()))
    if values:
        assert kept[0] == 0 and kept[-1] == len(values) - 1
    if not np.isnan(array).all():
        assert np.nanmax(array[kept]) == np.nanmax(array) and np.nanmin(array[kept]) == np.nanmin(array)


@pytest.mark.parametrize("points", [4, 5, 100])
def test_a_gap_stays_a_gap(points: int) -> None:
    assert np.isnan(np.full(1000, np.nan)[thin(np.full(1000, np.nan), points)]).all()
