"""DPPO: prime-rl's default from April to August 2026, when IPO (`ipo_mask`) took its place (pull request 3418)."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="DPPO: divergence proximal policy optimization (binary total variation)",
    source="arXiv 2602.04879; bounds and KL of prime-rl, whose default it was until August 2026 (ipo_mask since)",
    formula="-keep A r + tau (lp - lp_roll)^2;  keep: p - p_roll within +-0.2 in the advantage's direction",
    use="Asynchronous runs: bounds probabilities, so rare tokens are not clipped for a large ratio of tiny numbers.",
    settings={
        "advantage": "group",
        "normalize_std": False,
        "policy_loss": "dppo",
        "bound_low": 0.2,
        "bound_high": 0.2,
        "divergence_coef": 1e-3,
        "aggregation": "token-mean",
    },
)
