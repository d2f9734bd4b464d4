"""TRPO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="TRPO: trust region policy optimization",
    source="arXiv 1502.05477",
    formula="-r A,  weights moved by -sqrt(2 delta / x H x) x,  H x = gradient,  H the Hessian of KL(old || new)",
    use="Hardly ever: a step costs about 30 passes and holds all logits of a micro-batch. To compare with its bound.",
    settings={
        "advantage": "group",
        "policy_loss": "trpo",
        "anchor": "proximal",
        "aggregation": "token-mean",
    },
    notes="The step has no learning rate: trainer.learning_rate, grad_clip and the optimizer's moments are not used.",
)
