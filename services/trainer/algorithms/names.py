"""The choices that are words of one formula each, as types: settings and functions share them. Imports no torch."""

from typing import Literal, get_args

Aggregation = Literal["token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
"""From per-token losses to one number: see `aggregation.py`."""
KlEstimator = Literal["k1", "k2", "k3", "abs", "k1+", "k3+"]
"""Estimates of a KL from one sample: see `kl.py`."""
PreferenceKind = Literal["dpo", "cdpo", "robust", "ipo", "hinge"]
"""Losses of pairs: see `losses/preference.py`."""
CorrectionWeight = Literal["none", "token", "sequence", "geometric"]
CorrectionOutside = Literal["truncate", "mask"]

AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)
KL_ESTIMATORS: tuple[KlEstimator, ...] = get_args(KlEstimator)
