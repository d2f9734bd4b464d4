"""GMPO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="GMPO: geometric-mean policy optimization",
    source="arXiv 2507.20673",
    formula="-A exp(mean_t c_t),  c_t = min(log r_t, 0.4) for A > 0 else max(log r_t, -0.4)",
    use="Few tokens with extreme ratios: a geometric mean hardly feels them, so the clip may be wide.",
    settings={
        "advantage": "group",
        "policy_loss": "gmpo",
        "clip_low": 0.4,
        "clip_high": 0.4,
        "aggregation": "seq-mean-token-mean",
    },
    notes="The bounds are of the log-ratio, as in verl (geo_mean, 0.2) and TRL (gmpo, 0.4).",
)
