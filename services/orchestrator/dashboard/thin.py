"""Fewer points that look the same: of every bucket its lowest and its highest stay. Pure."""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Positions = NDArray[np.int64]


def thin(values: Values, points: int) -> Positions:
    """Positions to keep, rising, at most `points` (at least 4), first and last among them; NaN is no extreme."""
    count = len(values)
    if count <= points:
        return np.arange(count, dtype=np.int64)
    buckets = (points - 2) // 2
    width = -(-count // buckets)
    padded = np.full(buckets * width, np.nan)
    padded[:count] = values
    gone = np.isnan(padded)
    base = np.arange(buckets, dtype=np.int64) * width
    low = base + np.where(gone, np.inf, padded).reshape(buckets, width).argmin(axis=1)
    high = base + np.where(gone, -np.inf, padded).reshape(buckets, width).argmax(axis=1)
    kept = np.unique(np.concatenate((low, high, [0, count - 1])))
    return kept[kept < count].astype(np.int64)
