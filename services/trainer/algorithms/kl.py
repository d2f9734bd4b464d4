"""Per-token estimates of KL(policy || reference) from the logprobs of sampled tokens.

Source: Schulman, "Approximating KL divergence" (2020). With d = logprob - reference logprob: k1 = d, k2 = d^2 / 2,
k3 = exp(-d) - 1 + d. As a loss only k2's gradient is that of the KL in expectation; k1's is zero, k3's is biased.
Axes: tokens = completion tokens of a micro-batch.
"""

from beartype import beartype
from jaxtyping import Float, jaxtyped
from torch import Tensor

DIFFERENCE_LIMIT = 20.0
K3_LIMIT = 10.0
"""Beyond it one token's exponential would drown the step; verl and OpenRLHF cut there too."""

KL_ESTIMATORS = ("k1", "k2", "k3")


@jaxtyped(typechecker=beartype)
def kl_per_token(
    logprobs: Float[Tensor, " tokens"], reference_logprobs: Float[Tensor, " tokens"], *, estimator: str
) -> Float[Tensor, " tokens"]:
    """The estimate named by `estimator` (one of `KL_ESTIMATORS`), differentiable in `logprobs`."""
    difference = (logprobs - reference_logprobs).clamp(-DIFFERENCE_LIMIT, DIFFERENCE_LIMIT)
    match estimator:
        case "k1":
            return difference
        case "k2":
            return difference.square() / 2
        case "k3":
            return ((-difference).expm1() + difference).clamp(max=K3_LIMIT)
        case _:
            raise ValueError(f"KL estimator {estimator!r} is not one of {', '.join(KL_ESTIMATORS)}")
