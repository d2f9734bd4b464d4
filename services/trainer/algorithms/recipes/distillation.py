"""On-policy distillation: the negative reverse KL to a teacher, as each token's own reward."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="On-policy distillation",
    source="Thinking Machines, On-Policy Distillation (2025-10); GKD, arXiv 2306.13649; MiniLLM, arXiv 2306.08543",
    formula="-min(r A, clip(r, 0.8, 1.2) A),  A = lp_teacher - lp_roll of the token alone",
    use="A teacher has what the policy is to learn: a signal for each token, from one rollout a prompt.",
    settings={
        "advantage": "return",
        "gamma": 0.0,
        "policy_loss": "ppo_clip",
        "aggregation": "token-mean",
    },
    notes=(
        "Needs the scorer `teacher` (docs/judges.md). Neither baseline nor whitening, as in the Tinker cookbook, whose "
        "ratio has no clip: at max_staleness = 1 stale tokens then overshoot the teacher. GKD takes the KL over the "
        "whole vocabulary; this is its estimate from the sampled token."
    ),
)
