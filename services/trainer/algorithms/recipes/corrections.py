"""Named corrections of the gap between the sampling policy and the trained one, as data for `[algorithm.correction]`.

Sources: TIS (Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"); MIS and
IcePop (Ring-1T, arXiv 2510.18855); OPSM (DeepSeek-V3.2); geometric rejection: verl's `seq_mean_k1`.
"""

from collections.abc import Mapping
from types import MappingProxyType

CORRECTIONS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "none": {},
        "token_tis": {"weight": "token", "cap": 2.0},
        "sequence_tis": {"weight": "sequence", "cap": 5.0},
        "mis": {"weight": "sequence", "cap": 3.0, "outside": "mask"},
        "icepop": {"weight": "token", "cap": 5.0, "floor": 0.5, "outside": "mask"},
        "geometric": {"weight": "token", "cap": 2.0, "reject": "geometric", "reject_low": 0.999, "reject_high": 1.001},
        "opsm": {"opsm_delta": 0.5},
    }
)
