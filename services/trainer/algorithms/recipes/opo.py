"""OPO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="OPO: on-policy RL with the optimal reward baseline",
    source="arXiv 2505.23585",
    formula="-A lp,  A = R - sum(len R) / sum(len)",
    use="Strictly on-policy (run.max_staleness = 0): the baseline of least variance, no KL, no entropy bonus.",
    settings={
        "advantage": "opo",
        "policy_loss": "policy_gradient",
        "anchor": "proximal",
        "correction": {"preset": "token_tis"},
        "aggregation": "token-mean",
    },
    tables={"run": {"max_staleness": 0}},
)
