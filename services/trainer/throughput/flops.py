"""Model FLOPs of training: the products that a forward and a backward pass need, by arithmetic. Pure.

A product of a weight matrix with one token's vector is 2 FLOPs a weight forward, and backward 2 for the gradient of its
input and 2 for that of the weight: 6 N in all (arXiv:2001.08361), 4 N where the weight is frozen. Attention multiplies
queries with keys and probabilities with values: 2 products of 2 * width FLOPs a head and pair of tokens forward, twice
that backward (arXiv:2204.02311, appendix B), here of the pairs that the mask lets through. Left out: what is computed
again (gradient checkpointing, chunked logits), padding, lookups of embeddings, norms, biases, activations, softmax, the
optimizer, and the states of recurrent layers.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of matrices that one token is multiplied with; in a mixture, only of the experts that it passes."""

    trained: int = 0
    frozen: int = 0
    """Weights whose adapters are trained: gradients pass through them, but not to them."""

    @property
    def training(self) -> int:
        """FLOPs a token, forward and backward."""
        return 6 * self.trained + 4 * self.frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Layers whose attention is alike."""

    layers: int
    heads: int
    """Number of query heads: keys and values that several share are multiplied as often."""
    key_width: int
    """Width of one head's queries and keys; in latent attention its values have another, `value_width`."""
    value_width: int
    window: int = 0
    """Tokens that a token sees, itself included (transformers' `sliding_window_overlay`); 0 = all before it."""
    chunk: int = 0
    """Size of the chunks, of which a token sees only its own; 0 = no chunks."""

    def training(self, tokens: int) -> int:
        """FLOPs of one sequence, forward and backward: 12 * layers * heads * width a pair where both widths are one."""
        pairs = causal_pairs(tokens, window=self.window, chunk=self.chunk)
        return 6 * self.layers * self.heads * (self.key_width + self.value_width) * pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeShape:
    """The sizes from which FLOPs are counted."""

    body: Weights
    """Weights of the decoder: every token of a row passes them."""
    head: Weights
    """Only tokens that are scored pass it."""
    attention: tuple[Attention, ...] = ()

    def training(self, tokens: int, scored: int) -> int:
        """FLOPs of one row of `tokens`, whose head is multiplied `scored` times, forward and backward."""
        products = self.body.training * tokens + self.head.training * scored
        return products + sum(kind.training(tokens) for kind in self.attention)


def training_flops(shape: ComputeShape, rows: Iterable[tuple[int, int]]) -> int:
    """FLOPs of a forward and backward pass over `rows`, each (tokens without padding, how many of them are scored)."""
    return sum(shape.training(tokens, scored) for tokens, scored in rows)


def causal_pairs(tokens: int, *, window: int = 0, chunk: int = 0) -> int:
    """Pairs of a token and one that it sees, itself included: t (t + 1) / 2 without window and chunk."""
    if chunk:
        whole, rest = divmod(tokens, chunk)
        return whole * causal_pairs(chunk) + causal_pairs(rest)
    if window and window < tokens:
        return causal_pairs(window) + (tokens - window) * window
    return tokens * (tokens + 1) // 2
