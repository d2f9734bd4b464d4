"""GSPO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="GSPO: group sequence policy optimization",
    source="arXiv 2507.18071",
    formula="-min(s A, clip(s, 1-3e-4, 1+4e-4) A),  s = exp(mean_t log r_t)",
    use="Mixtures of experts and long sequences, where token ratios are noise.",
    settings={
        "advantage": "group",
        "policy_loss": "gspo",
        "clip_low": 3e-4,
        "clip_high": 4e-4,
        "aggregation": "seq-mean-token-mean",
    },
    notes="verl, TRL and OpenRLHF leave the clip at 0.2, where it never acts; the paper's is taken.",
)
