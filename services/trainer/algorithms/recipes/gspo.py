"""GSPO."""

from typing import Any

from services.trainer.algorithms.recipes.recipe import AlgorithmRecipe

LARGEST_CLIP = 0.05
"""The mean log-ratio of a sequence moves by thousandths: a clip beyond this never acts."""


def clip_is_for_sequences(table: Any) -> str | None:
    """A PPO-sized clip is the trap of GSPO: most libraries' default, and it never fires."""
    if max(table.clip_low, table.clip_high) <= LARGEST_CLIP:
        return None
    return (
        f"clip_low = {table.clip_low:g} and clip_high = {table.clip_high:g} are of PPO's size: the ratio of whole "
        f"sequences moves by thousandths, so they would never clip; the paper's are 0.0003 and 0.0004 "
        f"(at most {LARGEST_CLIP:g} is accepted)"
    )


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
    checks=(clip_is_for_sequences,),
    notes="verl, TRL and OpenRLHF leave the clip at 0.2, where it never acts; the paper's is taken.",
)
