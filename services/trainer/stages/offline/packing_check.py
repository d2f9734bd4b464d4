"""Checks whether the examples of one row see each other, on the loaded model, before the first step that packs.

Most of transformers' attentions take a position that begins again for the border of a sequence. Some families ignore
positions; convolutions and recurrences (Mamba, gated delta rule) need explicit bounds of the sequences, which only some
of their kernels support. No list of families would stay true, so two short examples are scored packed and alone.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.model.model import Policy
from headrace.services.trainer.stages.offline.examples import Example
from headrace.services.trainer.stages.offline.rows import make_rows
from headrace.wire.errors import ConfigError
from headrace.wire.telemetry.logs import get_logger

_LENGTHS = (12, 9)
"""Tokens of the two examples."""
_TOLERANCE = 1e-3
"""Largest leak between examples, in nats."""
_ROUNDING = {torch.float32: 1e-3, torch.float64: 1e-3, torch.bfloat16: 0.5}
"""Nats between packed and alone, by forward dtype: products of other shapes are rounded otherwise."""
_SHARE, _NOTHING = 0.05, 1e-6
"""For small logits, as in a fresh model: the tolerance as a share of the leak without borders; its least, in nats."""
_NOISE = 4.0
log = get_logger("trainer.packing")


class _Leak(NamedTuple):
    """How far packing moves logprobs, in nats; each is the largest over all tokens."""

    gap: float
    """Between an example packed and alone."""
    neighbour: float
    """Effect of another first example on the second one: equal shapes, and so equal rounding in any dtype."""
    whole: float
    """The same if both are one sequence: the leak without any border."""
    noise: float
    """Between two equal passes: sums on a GPU may come in any order."""

    def wrong(self, dtype: torch.dtype) -> bool:
        least = min(_TOLERANCE, max(_SHARE * self.whole, _NOTHING))
        return not (self.gap <= _ROUNDING[dtype] and self.neighbour <= least + _NOISE * self.noise)


def must_join(backend: Backend, *, chunk: int) -> bool:
    """Whether rows must be joined to one, and the model be given the bounds of its sequences.

    False if positions that begin again are enough. Raises ConfigError if neither keeps examples apart. Every rank must
    call it, and all get the same answer.
    """
    module = backend.module
    assert isinstance(module, Policy)
    reasons = []
    for joined in (False, True):
        try:
            leak = _leak(backend, chunk, joined=joined)
        except (TypeError, ValueError) as error:
            # Transformers names the kernel package that it would need; other families take no such argument.
            reasons.append(str(error).rstrip("."))
            continue
        if not leak.wrong(module.forward_dtype):
            if joined:
                log.info("packed_rows_joined", reason=f"with positions alone {reasons[0]}")
            return joined
        reasons.append(
            f"two short examples score {leak.gap:.2g} nats differently packed than alone, and another first "
            f"example changes the second by {leak.neighbour:.2g}"
        )
    joined_too = "the same" if reasons[1] == reasons[0] else reasons[1]
    raise ConfigError(
        f"sft.pack_tokens: models of the type {module.model.config.model_type} let the examples of one row attend to "
        f"each other: {reasons[0]} (with the starts of sequences given: {joined_too}). Set sft.pack_tokens = 0: each "
        "example then has its own row"
    )


@torch.no_grad()
def _leak(backend: Backend, chunk: int, *, joined: bool) -> _Leak:
    module = backend.module
    assert isinstance(module, Policy)
    first, second, other = (
        _example(length, seed, module.vocab) for seed, length in enumerate((*_LENGTHS, _LENGTHS[0]))
    )
    alone = _scored(backend, [(first,), (second,)], chunk)
    # The second row is shorter: in training rows are padded too.
    packed, beside, again = (
        _scored(backend, [(begin, second), (second,)], chunk, joined=joined) for begin in (first, other, first)
    )
    unbroken = _scored(backend, [(_chained(first, second),), (_chained(other, second),)], chunk)
    tail = second.trained_tokens
    return _Leak(
        gap=_most(packed[: len(alone)] - alone),
        neighbour=_most(packed[len(alone) - tail :] - beside[len(alone) - tail :]),
        whole=_most(unbroken[: len(unbroken) // 2][-tail:] - unbroken[-tail:]),
        noise=_most(packed - again),
    )


def _scored(backend: Backend, packs: list[tuple[Example, ...]], chunk: int, *, joined: bool = False) -> Tensor:
    """float64 logprobs of all trained tokens, pack after pack."""
    rows = make_rows(packs, backend.device, joined=joined)
    scores = backend(
        rows.token_ids, rows.rows, rows.places, rows.targets, rows.temperature, chunk, rows.positions, rows.bounds
    )
    logprobs: Tensor = scores.logprobs
    return logprobs.double().cpu()


def _example(length: int, seed: int, vocab: int) -> Example:
    """Random tokens of an example whose first token is its prompt."""
    token_ids = np.random.default_rng(seed).integers(0, vocab, length).astype(np.int32)
    return Example(token_ids, np.arange(length) > 0)


def _chained(first: Example, second: Example) -> Example:
    """Both as one sequence, without the first one's last token, which a packed row lacks too."""
    token_ids = np.concatenate([first.token_ids[:-1], second.token_ids])
    return Example(token_ids, np.concatenate([first.trained[:-1], second.trained]))


def _most(gap: Tensor) -> float:
    """Largest absolute gap; NaN if there is one, which compares as within no tolerance."""
    return float(gap.abs().max())
