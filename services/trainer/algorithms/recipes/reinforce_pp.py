"""REINFORCE++."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="REINFORCE++",
    source="arXiv 2501.03262",
    formula="-min(r A, clip(r, 0.8, 1.2) A),  A = whitened return of R - beta k1",
    use="PPO's stability without a critic, even with one rollout a prompt.",
    settings={
        "advantage": "return",
        "gamma": 1.0,
        "whiten": True,
        "policy_loss": "ppo_clip",
        "aggregation": "token-mean",
        "kl_coef": 0.01,
        "kl_in": "reward",
        "kl_estimator": "k1",
    },
)
