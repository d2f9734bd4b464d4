"""Per-token estimates of KL(policy || reference) from the logprobs of sampled tokens.

Source: Schulman, "Approximating KL divergence" (2020). With d = logprob - reference logprob: k1 = d, k2 = d^2 / 2,
k3 = exp(-d) - 1 + d, abs = |d|. As a loss only k2's gradient is the KL's in expectation; k1's is zero, k3's is
biased. `k1+` and `k3+` have the value of k1 and k3 and the gradient of k2 (straight-through; verl's names).
Axes: tokens = trained tokens of a micro-batch.
"""

from beartype import beartype
from jaxtyping import Bool, Float, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.names import KlEstimator

DIFFERENCE_LIMIT = 20.0
K3_LIMIT = 10.0
"""Above it one token's exponential would dominate the step; verl and OpenRLHF cut there too."""


@jaxtyped(typechecker=beartype)
def kl_per_token(
    logprobs: Float[Tensor, " tokens"],
    reference_logprobs: Float[Tensor, " tokens"],
    *,
    estimator: KlEstimator,
    ratio: Float[Tensor, " tokens"] | None = None,
) -> Float[Tensor, " tokens"]:
    """The estimate named by `estimator`, differentiable in `logprobs`.

    `ratio` = policy / the policy that sampled the tokens makes it unbiased on stale tokens (DeepSeek-V3.2; TRL's
    use_bias_correction_kl, slime's use-unbiased-kl). Whether it carries its gradient decides what is unbiased: with
    k1, k3 and abs it does, for the gradient of E_old[r k] = E_policy[k] is the KL's only if r is part of it (k1 and
    k3 then become right as losses); with k2, k1+ and k3+, whose gradient is right by itself, it is a constant weight.
    """
    difference = (logprobs - reference_logprobs.detach()).clamp(-DIFFERENCE_LIMIT, DIFFERENCE_LIMIT)
    if estimator.endswith("+"):
        k2 = _estimate(difference, "k2")
        estimate = _estimate(difference, estimator[:2]).detach() + k2 - k2.detach()
    else:
        estimate = _estimate(difference, estimator)
    if ratio is None:
        return estimate
    return estimate * (ratio if estimator in ("k1", "k3", "abs") else ratio.detach())


@jaxtyped(typechecker=beartype)
def k3_is_cut(
    logprobs: Float[Tensor, " tokens"], reference_logprobs: Float[Tensor, " tokens"]
) -> Bool[Tensor, " tokens"]:
    """Where k3 is at its limit: without a gradient, and smaller than it would be."""
    return _estimate((logprobs - reference_logprobs).clamp(min=-DIFFERENCE_LIMIT), "k3") >= K3_LIMIT


def _estimate(difference: Tensor, kind: str) -> Tensor:
    match kind:
        case "k1":
            return difference
        case "k2":
            return difference.square() / 2
        case "k3":
            return ((-difference).expm1() + difference).clamp(max=K3_LIMIT)
        case _:
            return difference.abs()
