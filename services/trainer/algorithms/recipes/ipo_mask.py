"""prime-rl's IPO under another name: `ipo` is a loss of preferences."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="IPO of prime-rl: importance policy optimization, masked by probability",
    source="prime-rl, its default since August 2026 (pull requests 1930, 3418 and 3586)",
    formula="-keep A r + tau (lp - lp_roll)^2, tau = 0;  keep: |p - p_roll| <= 0.3",
    use="Asynchronous runs: DPPO whose trust region leaves out both directions, of stale tokens too.",
    settings={
        "advantage": "group",
        "normalize_std": False,
        "policy_loss": "ipo_mask",
        "bound_low": 0.3,
        "bound_high": 0.3,
        "divergence_coef": 0.0,
        "aggregation": "token-mean",
    },
    notes="Bounds and tau are those since September 2026; before, prime-rl had 0.1 and 0.001.",
)
