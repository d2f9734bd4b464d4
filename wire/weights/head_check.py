"""Checks on a few tokens, when a model is loaded, that its own logits are its hidden states times its head.

Neither the trainer nor a teacher in the reward service calls the model's own head: they take logprobs from `hidden @
head.T`, chunk by chunk. Families that scale, cap, shift or transform their logits would silently get other ones.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import BaseModelOutput

_TOKENS = 8
_LARGEST = 100.0
"""The largest logit of the amplified row: reveals a cap that leaves small logits alone."""
_TOLERANCE = 1e-3
"""Largest error of float32 logits, relative to the largest logit; a scale of 0.99 gives ten times as much. Logits of
fewer bits may be wrong by their epsilon: 0.008 in bfloat16."""
_ALIKE = 0.9
"""Smallest cosine between small logits before and after a cap."""


class _Probe(NamedTuple):
    """Results of one pass over three equal rows, whose states are left as they are, amplified, and zeroed."""

    states: Tensor
    """[3, tokens, hidden] What the head was given."""
    logits: Tensor
    """[3, tokens, vocab] What the model made of them."""


def logits_problem(model: "PreTrainedModel") -> str | None:
    """Why `hidden @ head.T` are not the logits of a causal language model; None if they are.

    `model` is whole and has no adapters that matter yet: every rank checks its own copy before a backend shards it, all
    get the same answer, and no collective waits for a rank that has refused. Two forward passes of 24 tokens on the
    device of the weights, in the dtype of their products; the head is never in 4 bits.
    """
    head = model.get_output_embeddings()
    own = getattr(head, "weight", None)
    if not isinstance(own, Tensor):
        return "it has no language-model head with a weight"
    if getattr(head, "bias", None) is not None:
        return "its head has a bias"
    body, weight = model.get_decoder(), own.detach()
    token_ids = ((torch.arange(_TOKENS, device=weight.device) * 97 + 11) % len(weight))[None]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            ours = _states(body(input_ids=token_ids.expand(3, -1), use_cache=False))
            if ours is None:
                return "its decoder gives no hidden states"
            probe = _probe(model, body, weight, token_ids)
            if probe is None:
                return "its forward pass does not go through its decoder"
    finally:
        model.train(was_training)
    if not _close(ours[0].float(), probe.states[0]):
        return "its forward pass gives its decoder other inputs than token ids alone"
    return _difference(probe, weight, _numbers(model.config))


def _probe(model: "PreTrainedModel", body: nn.Module, weight: Tensor, token_ids: Tensor) -> _Probe | None:
    seen: list[Tensor] = []

    def amplify(_module: nn.Module, _inputs: object, output: "BaseModelOutput") -> "BaseModelOutput":
        states = _states(output)
        assert states is not None, "the decoder gave states a moment ago"
        top = (states[1] @ weight.T).abs().amax().clamp_min(1e-20)
        factors = torch.stack((torch.ones_like(top), _LARGEST / top, torch.zeros_like(top)))
        output.last_hidden_state = states * factors[:, None, None]
        seen.append(output.last_hidden_state)
        return output

    handle = body.register_forward_hook(amplify)
    try:
        logits = model(input_ids=token_ids.expand(3, -1), use_cache=False).logits
    finally:
        handle.remove()
    return _Probe(seen[-1].float(), logits.float()) if seen else None


def _states(output: object) -> Tensor | None:
    found = getattr(output, "last_hidden_state", None)
    return found if isinstance(found, Tensor) else None


def _difference(probe: _Probe, weight: Tensor, numbers: Mapping[str, float]) -> str | None:
    expected, eps = probe.states @ weight.float().T, torch.finfo(weight.dtype).eps
    if probe.logits.shape != expected.shape:
        return f"its logits have the shape {list(probe.logits.shape)}, not {list(expected.shape)}"
    if not bool((probe.logits[2].abs() <= _TOLERANCE * expected[0].abs().max()).all()):
        return "its head adds a bias to the logits, or transforms the hidden states first"
    if all(_close(probe.logits[row], expected[row], eps) for row in range(2)):
        return None
    return _reason(probe.logits, expected, numbers, eps)


def _reason(logits: Tensor, expected: Tensor, numbers: Mapping[str, float], eps: float) -> str:
    """What the model does to its logits, as far as two rows of different scales reveal it."""
    factors = (logits * expected).sum((1, 2))[:2] / expected.square().sum((1, 2))[:2]
    scaled = factors[:, None, None] * expected[:2]
    if all(_close(logits[row], scaled[row], eps) for row in range(2)) and _close(factors[0], factors[1], eps):
        factor = float(factors[0])
        keys = [key for key, value in numbers.items() if _is(value, factor) or (value and _is(1 / value, factor))]
        where = f" ({', '.join(f'{key} = {numbers[key]:g}' for key in keys)} in its config)" if keys else ""
        return f"it multiplies its logits by {factor:.6g}{where}"
    top, capped = float(expected[1].abs().max()), float(logits[1].abs().max())
    alike = float(torch.cosine_similarity(logits[0].flatten(), expected[0].flatten(), dim=0))
    if capped < (1 - _TOLERANCE) * top and alike > _ALIKE:
        return f"it caps its logits: what should be {top:.0f} is {capped:.3g}"
    return "it transforms the hidden states before the head"


def _numbers(config: "PreTrainedConfig") -> dict[str, float]:
    """Numbers in the text part of a config whose keys may denote a factor of the logits, by key."""
    values = config.get_text_config().to_dict()
    named = {key: value for key, value in values.items() if any(part in key for part in ("logit", "scal", "multipl"))}
    return {key: float(value) for key, value in named.items() if type(value) in (int, float)}


def _is(value: float, factor: float) -> bool:
    return abs(value - factor) <= _TOLERANCE * abs(factor)


def _close(found: Tensor, expected: Tensor, eps: float = 0.0) -> bool:
    """Whether the two agree within the tolerance; False also for what is not finite."""
    return bool(((found - expected).abs() <= max(_TOLERANCE, eps) * expected.abs().max()).all())
