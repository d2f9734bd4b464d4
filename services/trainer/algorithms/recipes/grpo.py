"""GRPO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="GRPO: group-relative policy optimization",
    source="DeepSeekMath, arXiv 2402.03300",
    formula="-min(r A, clip(r, 1-eps, 1+eps) A) + beta k3,  A = (R - mean_G) / (std_G + 1e-6)",
    use="The default: verifiable rewards, no critic to train. DAPO where entropy collapses.",
    settings={"advantage": "group", "policy_loss": "ppo_clip", "aggregation": "seq-mean-token-mean"},
    notes=(
        "The KL is off (the paper: 0.04, R1: 0.001): set kl_coef. A group of one has the advantage 0; verl gives it "
        "its raw reward. The std is unbiased, as in verl and OpenRLHF."
    ),
)
