"""Dr. GRPO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="Dr. GRPO: GRPO done right",
    source="arXiv 2503.20783",
    formula="-min(r A, clip(r, 1-eps, 1+eps) A), summed over tokens, divided by a constant;  A = R - mean_G",
    use="GRPO without its bias towards long wrong answers and questions with little spread.",
    settings={
        "advantage": "group",
        "normalize_std": False,
        "policy_loss": "ppo_clip",
        "aggregation": "seq-mean-token-sum-norm",
    },
    notes="The constant is max_tokens and the sum is divided by the rollouts of the step (old verl left that out).",
)
