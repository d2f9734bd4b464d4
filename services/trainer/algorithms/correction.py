"""Off-policy correction: constant weights for the gap between the policy that sampled and the one that anchors.

rho = old / behaviour, of a token; `old` are the trainer's logprobs (of the proximal policy), `behaviour` the engine's.
The gap is staleness and the mismatch of two implementations. Everything here is detached.
Axes: tokens = trained tokens of a micro-batch, rollouts = their owners.

Trap: a token gap of 0.012 over 100 tokens makes a sequence ratio of 3.3, so sequence weights punish length. Prefer
token weights, with rejection by the geometric mean. Trap: with top-p, top-k or min-p the engine's logprobs are
renormalized and the trainer's are not; what was cut away leaks into rho.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headrace.services.trainer.algorithms.algorithm import PolicyTokens
from headrace.services.trainer.algorithms.losses.policy import LOG_RATIO_LIMIT, log_ratios
from headrace.services.trainer.algorithms.parts import CorrectionTable
from headrace.services.trainer.algorithms.segments import segment_mean, segment_sum, spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What to multiply each token's policy loss by. The normalizers of the step stay as they are."""

    weights: Float[Tensor, " tokens"]
    """0 where the token is not kept."""
    kept: Bool[Tensor, " tokens"]


def correct(tokens: PolicyTokens, behaviour: Float[Tensor, " tokens"], table: CorrectionTable) -> Correction:
    """Weights by `table.weight`, bounded to [floor, cap], and rollouts dropped by `table.reject` and `opsm_delta`.

    Outside the bounds a weight is cut to them (truncated importance sampling, TIS) or its tokens are masked (MIS; with
    token weights within [0.5, 5] it is IcePop). A rollout is dropped where its measure is outside [reject_low,
    reject_high]: the geometric mean of its rho, or the mean of k2 = log(rho)^2 / 2 or k3 = rho - 1 - log(rho).
    Settings in use: token TIS cap 2 (verl), MIS by sequence cap 3 (TRL), geometric rejection within [0.999, 1.001]
    (verl), with token weights: seq-mask-tis (NeMo RL).

    Off-policy sequence masking (DeepSeek-V3.2) drops tokens of A < 0 in a rollout that drifted by more than
    `opsm_delta`: the mean of behaviour - old, nats. TRL suggests 0.5, slime ships 1e-4.
    """
    log_rho = log_ratios(tokens.old, behaviour).detach()
    weights = _raw_weights(log_rho, tokens.lengths, table)
    kept = torch.ones_like(weights, dtype=torch.bool)
    if table.weight != "none" and table.outside == "mask":
        kept = (weights >= table.floor) & (weights <= table.cap)
    elif table.weight != "none":
        weights = weights.clamp(table.floor, table.cap)
    if table.reject != "none":
        measure = _measure(log_rho, tokens.lengths, table)
        kept = kept & spread((measure >= table.reject_low) & (measure <= table.reject_high), tokens.lengths)
    if table.opsm_delta:
        drift = segment_mean((behaviour - tokens.old).detach(), tokens.lengths)
        kept = kept & ((tokens.advantages >= 0) | spread(drift <= table.opsm_delta, tokens.lengths))
    return Correction(weights=weights.masked_fill(~kept, 0.0), kept=kept)


def _raw_weights(log_rho: Tensor, lengths: Tensor, table: CorrectionTable) -> Tensor:
    match table.weight:
        case "token":
            return log_rho.exp()
        case "sequence":
            return spread(segment_sum(log_rho, lengths).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp(), lengths)
        case "geometric":
            return spread(segment_mean(log_rho, lengths).exp(), lengths)
        case "none":
            return torch.ones_like(log_rho)


def _measure(log_rho: Tensor, lengths: Tensor, table: CorrectionTable) -> Tensor:
    """Returns one number for each rollout."""
    if table.reject == "geometric":
        return segment_mean(log_rho, lengths).exp()
    return segment_mean(log_rho.square() / 2 if table.reject == "k2" else log_rho.expm1() - log_rho, lengths)
