"""DAPO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="DAPO: decoupled clip and dynamic sampling",
    source="arXiv 2503.14476",
    formula="-min(r A, clip(r, 1-0.2, 1+0.28) A), mean over all tokens;  A = (R - mean_G) / std_G",
    use="Long answers to hard, verifiable questions: keeps entropy up and trains only on groups with unequal scores.",
    settings={
        "advantage": "group",
        "policy_loss": "ppo_clip",
        "clip_low": 0.2,
        "clip_high": 0.28,
        "aggregation": "token-mean",
        "dynamic_sampling": True,
        "discard_limit": 10,
    },
    notes=(
        "Soft overlong punishment is off until overlong_buffer is set (the paper: 4096 of 20480 tokens, factor 1); it "
        "is capped at the factor, as OpenRLHF does and verl does not. mask_truncated is the paper's filtering."
    ),
    tables={"batch": {"groups": 512, "group_size": 16}},
)
