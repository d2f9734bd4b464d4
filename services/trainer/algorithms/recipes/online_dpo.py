"""Online DPO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="Online DPO",
    source="arXiv 2402.04792; DPO: arXiv 2305.18290",
    formula="-log sigmoid(beta Delta) of each group's best and worst rollout, by its exact on-policy gradient",
    use="Preferences from a judge or reward model whose scale is meaningless: only the order within a group counts.",
    settings={
        "advantage": "online_dpo",
        "beta": 0.1,
        "policy_loss": "policy_gradient",
        "aggregation": "seq-mean-token-sum",
        "anchor": "proximal",
    },
    notes="A group in which all scores are equal gives no pair and no gradient.",
)
