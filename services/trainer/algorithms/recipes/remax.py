"""ReMax."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="ReMax",
    source="arXiv 2310.10505",
    formula="-A lp,  A = R - R of the greedy answer",
    use="One rollout a prompt: the baseline is one greedy decode.",
    settings={
        "advantage": "remax",
        "policy_loss": "policy_gradient",
        "anchor": "proximal",
        "correction": {"preset": "token_tis"},
        "aggregation": "seq-mean-token-sum",
    },
    notes="The greedy rollout is made beside the group's own (batch.group_size counts it not) and is not trained.",
)
