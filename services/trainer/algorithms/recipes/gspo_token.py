"""GSPO-token."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="GSPO-token",
    source="arXiv 2507.18071, section 4.3",
    formula="-min(s_t A_t, clip(s_t, 1-3e-4, 1+4e-4) A_t),  s_t = sg[s] exp(lp - sg[lp])",
    use="GSPO where advantages differ from token to token (turns, process rewards).",
    settings={
        "advantage": "group",
        "policy_loss": "gspo_token",
        "clip_low": 3e-4,
        "clip_high": 4e-4,
        "aggregation": "seq-mean-token-mean",
    },
    notes="Equal to GSPO, in value and gradient, where all tokens of a rollout have one advantage.",
)
