"""Losses of preference: the DPO family and the Bradley-Terry reward model.

Axis: pairs of a better (`chosen`) and a worse (`rejected`) completion.
"""

import torch.nn.functional as F
from beartype import beartype
from jaxtyping import Float, jaxtyped
from torch import Tensor

from headrace.services.trainer.algorithms.names import PreferenceKind


@jaxtyped(typechecker=beartype)
def preference_loss(
    policy_chosen: Float[Tensor, " pairs"],
    policy_rejected: Float[Tensor, " pairs"],
    reference_chosen: Float[Tensor, " pairs"],
    reference_rejected: Float[Tensor, " pairs"],
    *,
    beta: float,
    kind: PreferenceKind,
    label_smoothing: float = 0.0,
) -> Float[Tensor, " pairs"]:
    """The loss of each pair, from logprobs *summed* over the completion; for `ipo` pass their means over its tokens.

    With D = (chosen - rejected of the policy) - (of the reference), e = `label_smoothing`, s = log sigmoid:
    `dpo` -s(bD) (arXiv 2305.18290); `cdpo` -(1 - e) s(bD) - e s(-bD) (Mitchell, 2023); `robust` (-(1 - e) s(bD) +
    e s(-bD)) / (1 - 2e) (arXiv 2403.00409); `hinge` max(0, 1 - bD) (SLiC, arXiv 2305.10425); `ipo` (D - 1 / 2b)^2
    (arXiv 2310.12036). IPO on means is what TRL does, confirmed by its authors; OpenRLHF passes sums.
    """
    margin = (policy_chosen - policy_rejected) - (reference_chosen - reference_rejected).detach()
    right, wrong = F.logsigmoid(beta * margin), F.logsigmoid(-beta * margin)
    match kind:
        case "dpo":
            return -right
        case "cdpo":
            return -(1 - label_smoothing) * right - label_smoothing * wrong
        case "robust":
            return (-(1 - label_smoothing) * right + label_smoothing * wrong) / (1 - 2 * label_smoothing)
        case "ipo":
            return (margin - 1 / (2 * beta)).square()
        case "hinge":
            return (1 - beta * margin).relu()


@jaxtyped(typechecker=beartype)
def reward_model_loss(
    chosen: Float[Tensor, " pairs"],
    rejected: Float[Tensor, " pairs"],
    *,
    margin: Float[Tensor, " pairs"] | float = 0.0,
    centering: float = 0.0,
) -> Float[Tensor, " pairs"]:
    """Bradley-Terry: -log sigmoid(chosen - rejected - `margin`) + `centering` (chosen + rejected)^2.

    From the last token's scores. `margin`, one for all or one a pair, as in Llama 2 (arXiv 2307.09288); `centering` as
    in arXiv 2312.09244 (TRL suggests 0.01): a reward is known up to a constant, and this holds it near 0.
    """
    return F.softplus(rejected - chosen + margin) + centering * (chosen + rejected).square()
