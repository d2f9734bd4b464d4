"""REINFORCE."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="REINFORCE",
    source="Williams 1992",
    formula="-A lp,  A = whitened discounted return",
    use="The reference point: one gradient, no group needed.",
    settings={
        "advantage": "return",
        "whiten": True,
        "policy_loss": "policy_gradient",
        "anchor": "proximal",
        "correction": {"preset": "token_tis"},
        "aggregation": "token-mean",
    },
    notes=(
        "Returns are whitened over the batch, the usual constant baseline; whiten = false is the bare estimator. Stale "
        "tokens are weighted by their truncated ratio: without it one version of lag is enough to unlearn."
    ),
)
