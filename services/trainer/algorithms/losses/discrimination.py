"""The loss of a classifier that separates references from rollouts. Axis: examples."""

import torch.nn.functional as F
from beartype import beartype
from jaxtyping import Bool, Float, jaxtyped
from torch import Tensor


@jaxtyped(typechecker=beartype)
def discrimination_loss(
    logits: Float[Tensor, " examples"], is_reference: Bool[Tensor, " examples"], *, label_smoothing: float = 0.0
) -> Float[Tensor, " examples"]:
    """Binary cross-entropy of each example: -y log sigmoid(l) - (1 - y) log sigmoid(-l).

    y is 1 for a reference and 0 for a rollout (GAN, arXiv 1406.2661; as a reward: GAIL, arXiv 1606.03476), moved by
    `label_smoothing` towards one half (arXiv 1606.03498).
    """
    labels = is_reference.to(logits.dtype) * (1 - label_smoothing) + label_smoothing / 2
    return F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
