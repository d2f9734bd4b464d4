"""CISPO."""

from headrace.services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

RECIPE = AlgorithmRecipe(
    title="CISPO: clipped importance-sampling weights",
    source="MiniMax-M1, arXiv 2506.13585; bounds of ScaleRL, arXiv 2510.13786",
    formula="-sg[clip(r, 1-clip_low, 1+clip_high)] A lp, mean over all tokens",
    use="Every token keeps its gradient, including rare turning points that PPO would clip away.",
    settings={
        "advantage": "group",
        "policy_loss": "cispo",
        "clip_low": 1.0,
        "clip_high": 4.0,
        "aggregation": "token-mean",
    },
    notes=(
        "Bounds are relative to 1, as in verl, slime and SkyRL: clip_low = 1 is no lower bound, clip_high = 4 is the "
        "absolute 5 that TRL calls epsilon_high."
    ),
)
