"""REINFORCE++-baseline."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="REINFORCE++-baseline",
    source="arXiv 2501.03262, version 5",
    formula="-min(r A, clip(r, 0.8, 1.2) A) + beta k2,  A = whitened (R - mean_G)",
    use="Groups of very different spread: advantages are scaled by the batch, not by the group.",
    settings={
        "advantage": "mean_baseline",
        "whiten": True,
        "policy_loss": "ppo_clip",
        "aggregation": "token-mean",
        "kl_coef": 0.001,
        "kl_in": "loss",
        "kl_estimator": "k2",
    },
)
