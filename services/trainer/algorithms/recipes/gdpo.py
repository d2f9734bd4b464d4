"""GDPO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="GDPO: group reward-decoupled normalization policy optimization",
    source="arXiv 2601.05242",
    formula="-min(r A, clip(r, 1-eps, 1+eps) A),  A = whitened sum_n w_n (R_n - mean_G) / (std_G + 1e-6)",
    use="Several scorers: each counts by its weight, however large or spread its values are.",
    settings={"advantage": "gdpo", "policy_loss": "ppo_clip", "aggregation": "seq-mean-token-mean"},
    notes=(
        "All but the advantage is GRPO's. The weights are those of [[reward.scorers]]; dynamic_sampling still drops "
        "groups by the whole score."
    ),
)
