"""Off-policy correction: constant weights for the gap between the policy that sampled and the one that anchors.

rho = old / behaviour, of a token; `old` are the trainer's logprobs (of the proximal policy), `behaviour` the engine's.
The gap is staleness and the mismatch of two implementations. Everything here is detached.
Axes: tokens = trained tokens of a micro-batch, rollouts = their owners.

Trap: a token gap of 0.012 over 100 tokens makes a sequence ratio of 3.3, so sequence weights punish length. Prefer
token weights, with rejection by the geometric mean. Trap: with top-p, top-k or min-p the engine's logprobs are
renormalized and the trainer's are not; what was cut away leaks into rho.
"""

import math
from dataclasses import dataclass

import torch
from beartype import beartype
from jaxtyping import Bool, Float, Int, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.losses.policy import LOG_RATIO_LIMIT, log_ratios
from headrace.services.trainer.algorithms.names import OUTSIDE, WEIGHTS
from headrace.services.trainer.algorithms.segments import segment_max, segment_mean, segment_sum, spread

REJECTIONS = ("none", "geometric", "sequence", "k2", "k2-sum", "k2-max", "k3", "k3-sum", "k3-max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What to multiply each token's policy loss by. The normalizers of the step stay as they are."""

    weights: Float[Tensor, " tokens"]
    """0 where the token is not kept."""
    kept: Bool[Tensor, " tokens"]


@jaxtyped(typechecker=beartype)
def correct(
    old: Float[Tensor, " tokens"],
    behaviour: Float[Tensor, " tokens"],
    lengths: Int[Tensor, " rollouts"],
    *,
    weight: str = "none",
    cap: float = math.inf,
    floor: float = 0.0,
    outside: str = "truncate",
    reject: str = "none",
    reject_low: float = 0.0,
    reject_high: float = math.inf,
) -> Correction:
    """Weights by `weight` (one of `WEIGHTS`), bounded to [floor, cap], and rollouts dropped by `reject`.

    `weight`: of each token, or one for the whole rollout: the product of its tokens' rho or their geometric mean.
    `outside` the bounds a weight is cut to them (truncated importance sampling, TIS) or its tokens are masked (MIS;
    with token weights within [0.5, 5] it is IcePop). `reject` (one of `REJECTIONS`) drops a rollout whose measure is
    outside [reject_low, reject_high]: the geometric mean or the product of its rho, or the mean (plain), sum or
    maximum of k2 = log(rho)^2 / 2 or k3 = rho - 1 - log(rho). Settings in use: token TIS cap 2 (verl), MIS by
    sequence cap 3 (TRL), geometric rejection within [0.999, 1.001] (verl), with token weights: seq-mask-tis (NeMo RL).
    """
    _check(weight=weight, outside=outside, reject=reject, cap=cap, floor=floor)
    log_rho = log_ratios(old, behaviour).detach()
    raw = _raw_weights(log_rho, lengths, weight)
    kept = torch.ones_like(raw, dtype=torch.bool)
    if weight != "none" and outside == "mask":
        kept = (raw >= floor) & (raw <= cap)
    elif weight != "none":
        raw = raw.clamp(floor, cap)
    if reject != "none":
        measure = _measure(log_rho, lengths, reject)
        kept = kept & spread((measure >= reject_low) & (measure <= reject_high), lengths)
    return Correction(weights=raw.masked_fill(~kept, 0.0), kept=kept)


@jaxtyped(typechecker=beartype)
def opsm_kept(
    logprobs: Float[Tensor, " tokens"],
    behaviour: Float[Tensor, " tokens"],
    advantages: Float[Tensor, " tokens"],
    lengths: Int[Tensor, " rollouts"],
    *,
    delta: float,
) -> Bool[Tensor, " tokens"]:
    """Off-policy sequence masking (DeepSeek-V3.2): False where A < 0 in a rollout that drifted by more than `delta`.

    The drift is the mean of behaviour - `logprobs` over the rollout, nats; `logprobs` are the current policy's (the
    paper, TRL) or the proximal one's. TRL suggests a delta of 0.5, slime ships 1e-4.
    """
    drift = segment_mean((behaviour - logprobs).detach(), lengths)
    return (advantages >= 0) | spread(drift <= delta, lengths)


def _check(*, weight: str, outside: str, reject: str, cap: float, floor: float) -> None:
    for name, value, names in (
        ("weight", weight, WEIGHTS),
        ("outside", outside, OUTSIDE),
        ("reject", reject, REJECTIONS),
    ):
        if value not in names:
            raise ValueError(f"{name} {value!r} is not one of {', '.join(names)}")
    if not 0 <= floor <= cap or cap == 0:
        raise ValueError(f"floor is {floor} and cap {cap}: floor must be at least 0 and at most cap, and cap above 0")


def _raw_weights(log_rho: Tensor, lengths: Tensor, weight: str) -> Tensor:
    match weight:
        case "token":
            return log_rho.exp()
        case "sequence":
            return spread(_bounded_exp(segment_sum(log_rho, lengths)), lengths)
        case "geometric":
            return spread(segment_mean(log_rho, lengths).exp(), lengths)
        case _:
            return torch.ones_like(log_rho)


def _measure(log_rho: Tensor, lengths: Tensor, reject: str) -> Tensor:
    """Returns one number for each rollout."""
    if reject == "geometric":
        return segment_mean(log_rho, lengths).exp()
    if reject == "sequence":
        return _bounded_exp(segment_sum(log_rho, lengths))
    kind, _, over = reject.partition("-")
    per_token = log_rho.square() / 2 if kind == "k2" else log_rho.expm1() - log_rho
    return {"": segment_mean, "sum": segment_sum, "max": segment_max}[over](per_token, lengths)


def _bounded_exp(log_values: Tensor) -> Tensor:
    return log_values.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
