"""VAPO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="VAPO: value-model-based augmented PPO",
    source="arXiv 2504.05118",
    formula="-min(r A, clip(r, 0.8, 1.28) A) + 0.1 nll(correct);  A = GAE, lam = 1 - 1/(0.05 length); returns: lam = 1",
    use="Long reasoning with a critic: the best value-based algorithm here, if the critic is pretrained.",
    settings={
        "advantage": "gae",
        "gamma": 1.0,
        "lam_alpha": 0.05,
        "lam_critic": 1.0,
        "whiten": True,
        "policy_loss": "ppo_clip",
        "clip_low": 0.2,
        "clip_high": 0.28,
        "aggregation": "token-mean",
        "positive_nll_coef": 0.1,
        "anchor": "proximal",
        "correction": {"preset": "token_tis"},
        "minibatches": 4,
    },
    notes=(
        "alpha x length is held at 1 or more, so that lam stays in [0, 1] (as NeMo RL does): answers under 20 tokens "
        "get lam = 0, one-step TD. For short answers set lam_alpha to 1."
    ),
    tables={"critic": {"pretrain_steps": 50}, "batch": {"groups": 512, "group_size": 16}},
)
