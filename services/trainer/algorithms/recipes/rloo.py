"""RLOO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="RLOO: REINFORCE leave-one-out",
    source="arXiv 2402.14740",
    formula="-A lp,  A = R - mean of the others' R (= G/(G-1) times GRPO's without the std)",
    use="The unbiased baseline of a group, on-policy.",
    settings={
        "advantage": "rloo",
        "policy_loss": "policy_gradient",
        "anchor": "proximal",
        "correction": {"preset": "token_tis"},
        "aggregation": "seq-mean-token-sum",
    },
    notes="The paper's loss is plain REINFORCE over the whole sequence; TRL clips (policy_loss = 'ppo_clip').",
)
