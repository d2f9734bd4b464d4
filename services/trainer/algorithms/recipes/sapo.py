"""SAPO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="SAPO: soft adaptive policy optimization",
    source="Qwen, arXiv 2511.20347",
    formula="-(4/tau) sigmoid(tau (r - 1)) A,  tau = 1.0 for A > 0 else 1.05",
    use="Replaces hard clipping: the gradient of off-policy tokens fades instead of vanishing at a threshold.",
    settings={
        "advantage": "group",
        "policy_loss": "sapo",
        "tau_positive": 1.0,
        "tau_negative": 1.05,
        "aggregation": "seq-mean-token-mean",
    },
    notes="The loss at ratio 1 is -2A/tau, not -A: do not compare its curve with other algorithms'.",
)
