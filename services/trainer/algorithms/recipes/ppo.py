"""PPO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="PPO: proximal policy optimization",
    source="arXiv 1707.06347; for language models arXiv 2203.02155; dual clip arXiv 1912.09729",
    formula="-min(r A, clip(r, 0.8, 1.2) A), at most 3|A| for A < 0;  A = GAE(1, 0.95) of R - beta k1, whitened",
    use="A learned reward (RLHF) or rewards on tokens: a critic assigns the credit to tokens.",
    settings={
        "advantage": "gae",
        "gamma": 1.0,
        "lam": 0.95,
        "whiten": True,
        "policy_loss": "ppo_clip",
        "dual_clip": 3.0,
        "aggregation": "token-mean",
        "kl_coef": 0.05,
        "kl_in": "reward",
        "kl_estimator": "k1",
        "epochs": 1,
        "minibatches": 4,
        "anchor": "proximal",
        "correction": {"preset": "token_tis"},
    },
    notes="lam is TRL's and NeMo's 0.95; verl, OpenRLHF and slime use 1. The dual clip is verl's; 0 turns it off.",
)
