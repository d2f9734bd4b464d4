"""Coefficients that follow a target. Each is state: the returned value belongs in the checkpoint."""

import math


def adapted_kl_coef(coef: float, *, kl: float, target: float, horizon: float, rollouts: int) -> float:
    """The KL coefficient after a step of `rollouts` rollouts whose mean KL was `kl`.

    coef (1 + clip(kl / target - 1, -0.2, 0.2) rollouts / horizon): Ziegler et al. (arXiv 1909.08593); horizon in
    rollouts (verl and OpenRLHF: 10,000). target and kl in nats a token, as in verl; the paper's 6 is of whole answers.
    A KL that is not finite changes nothing.
    """
    if not math.isfinite(kl):
        return coef
    error = min(max(kl / target - 1, -0.2), 0.2)
    return max(coef * (1 + error * rollouts / horizon), 0.0)


def adapted_entropy_coef(coef: float, *, entropy: float, target: float, step: float, high: float) -> float:
    """The entropy coefficient after a step of mean entropy `entropy`: up by `step` at or below `target`, else down.

    Kept within 0 and `high`; nats a token. TRL steps alike (0.005), but after a step above `target` it leaves the bonus
    out. An entropy that is not finite changes nothing.
    """
    if not math.isfinite(entropy):
        return coef
    return min(max(coef + (step if entropy <= target else -step), 0.0), high)
