"""Policy losses whose ratio is that of the whole rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.services.trainer.algorithms.parts.part import policy_loss
from headrace.services.trainer.algorithms.parts.token_losses import ClipRange

if TYPE_CHECKING:
    from headrace.services.trainer.algorithms.algorithm import PolicyLoss, PolicyTokens

LARGEST_CLIP = 0.05
"""The mean log-ratio of a sequence moves by thousandths: a clip beyond this never acts."""


def never_clips(options: ClipRange) -> str | None:
    """A PPO-sized clip is the trap of GSPO: most libraries' default, and it never fires."""
    if max(options.clip_low, options.clip_high) <= LARGEST_CLIP:
        return None
    return (
        f"clip_low = {options.clip_low:g} and clip_high = {options.clip_high:g} are of PPO's size: the ratio of whole "
        f"sequences moves by thousandths, so they would never clip; the paper's are 0.0003 and 0.0004 "
        f"(at most {LARGEST_CLIP:g} is accepted)"
    )


@policy_loss("gspo", ClipRange, problem=never_clips)
def gspo(tokens: PolicyTokens, options: ClipRange) -> PolicyLoss:
    """`-min(s A, clip(s) A)`, `s = exp(mean_t log r_t)` of the rollout

    the paper's clip is a thousandth of PPO's; verl, TRL and OpenRLHF leave 0.2, which never clips. Refused here
    """
    from headrace.services.trainer.algorithms.losses.sequence import gspo_loss

    return gspo_loss(
        tokens.logprobs,
        tokens.old,
        tokens.advantages,
        tokens.lengths,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
    )


@policy_loss("gspo_token", ClipRange, problem=never_clips)
def gspo_token(tokens: PolicyTokens, options: ClipRange) -> PolicyLoss:
    """The same with `s_t = sg[s] exp(lp - sg[lp])`

    what verl runs as GSPO
    """
    from headrace.services.trainer.algorithms.losses.sequence import gspo_token_loss

    return gspo_token_loss(
        tokens.logprobs,
        tokens.old,
        tokens.advantages,
        tokens.lengths,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
    )
