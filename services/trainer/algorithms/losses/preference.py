"""Losses of preference: the DPO family and the Bradley-Terry reward model.

Axes: pairs of a better (`chosen`) and a worse (`rejected`) completion; rollouts = members of one scored group.
"""

import torch
import torch.nn.functional as F
from beartype import beartype
from jaxtyping import Float, jaxtyped
from torch import Tensor

PREFERENCE_LOSSES = ("dpo", "cdpo", "robust", "ipo", "hinge")


@jaxtyped(typechecker=beartype)
def preference_loss(
    policy_chosen: Float[Tensor, " pairs"],
    policy_rejected: Float[Tensor, " pairs"],
    reference_chosen: Float[Tensor, " pairs"],
    reference_rejected: Float[Tensor, " pairs"],
    *,
    beta: float,
    kind: str,
    label_smoothing: float = 0.0,
) -> Float[Tensor, " pairs"]:
    """The loss of each pair, from logprobs *summed* over the completion; for `ipo` pass their means over its tokens.

    With D = (chosen - rejected of the policy) - (of the reference), e = `label_smoothing`, s = log sigmoid:
    `dpo` -s(bD) (arXiv 2305.18290); `cdpo` -(1 - e) s(bD) - e s(-bD) (Mitchell, 2023); `robust` (-(1 - e) s(bD) +
    e s(-bD)) / (1 - 2e) (arXiv 2403.00409); `hinge` max(0, 1 - bD) (SLiC, arXiv 2305.10425); `ipo` (D - 1 / 2b)^2
    (arXiv 2310.12036). IPO on means is what TRL does, confirmed by its authors; OpenRLHF passes sums.
    """
    _check(kind, beta, label_smoothing)
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
        case _:
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


@jaxtyped(typechecker=beartype)
def online_pair_advantages(
    rewards: Float[Tensor, " rollouts"],
    policy: Float[Tensor, " rollouts"],
    reference: Float[Tensor, " rollouts"],
    *,
    beta: float,
) -> Float[Tensor, " rollouts"]:
    """Online DPO as advantages: +-beta sigmoid(-beta D) on the group's best and worst rollout, 0 on the others.

    `policy` and `reference` are logprobs summed over each completion, D is their DPO margin. With these
    `policy_gradient_loss`, summed over tokens and divided by the number of *pairs*, has exactly DPO's gradient at the
    policy that gave `policy`. Of equals the first counts; a group whose rewards are all the same is no pair, nor is
    one with fewer than two scored (not NaN).
    """
    made = torch.zeros_like(policy)
    scored = ~rewards.isnan()
    best = int(rewards.masked_fill(~scored, float("-inf")).argmax()) if len(rewards) else 0
    worst = int(rewards.masked_fill(~scored, float("inf")).argmin()) if len(rewards) else 0
    if int(scored.sum()) < 2 or bool(rewards[best] == rewards[worst]):
        return made
    margin = (policy[best] - policy[worst]) - (reference[best] - reference[worst])
    pull = beta * torch.sigmoid(-beta * margin.detach())
    made[best], made[worst] = pull, -pull
    return made


def _check(kind: str, beta: float, label_smoothing: float) -> None:
    if kind not in PREFERENCE_LOSSES:
        raise ValueError(f"preference loss {kind!r} is not one of {', '.join(PREFERENCE_LOSSES)}")
    if beta <= 0:
        raise ValueError(f"beta is {beta}, must be above 0")
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing is {label_smoothing}, must be at least 0 and below 0.5")
    if label_smoothing and kind not in ("cdpo", "robust"):
        raise ValueError(f"label_smoothing has no part in {kind!r}: use 'cdpo' or 'robust', or leave it at 0")
