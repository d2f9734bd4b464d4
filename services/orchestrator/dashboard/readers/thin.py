"""Min-max decimation of a curve: keeps the lowest and the highest value of every bucket. Pure."""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Positions = NDArray[np.int64]


def thin(values: Values, points: int) -> Positions:
    """Ascending positions to keep, at most `points` (>= 4), including first and last; NaN is never an extreme."""
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
