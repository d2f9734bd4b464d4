"""The supervised stage: next-token loss on what is to be said, the mean over all trained tokens of a step."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from services.trainer.algorithms.logprobs import TokenScores
from services.trainer.backends.backend import Backend
from services.trainer.stages.examples import Example
from services.trainer.stages.packing import pack
from services.trainer.stages.rows import make_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """See `services.trainer.stages.offline.Objective`."""

    pack_tokens: int
    """0 = a row for each example."""
    logprob_chunk: int
    joined: bool = False
    """The rows of a pass are joined to one: see `services.trainer.stages.packing_check`."""

    def units(self, examples: Sequence[Example]) -> list[tuple[Example, ...]]:
        """Packed rows."""
        if not self.pack_tokens:
            return [(example,) for example in examples]
        rows = pack([example.row_tokens for example in examples], capacity=self.pack_tokens)
        return [tuple(examples[number] for number in row) for row in rows]

    def tokens(self, unit: tuple[Example, ...]) -> int:
        """See `Objective`."""
        return sum(example.row_tokens for example in unit)

    def rows(self, unit: tuple[Example, ...]) -> list[tuple[int, int]]:
        """See `Objective`: packed examples do not see each other."""
        return [(example.row_tokens, example.trained_tokens) for example in unit]

    def learned(self, unit: tuple[Example, ...]) -> int:
        """See `Objective`."""
        return self.weight(unit)

    def weight(self, examples: Sequence[Example]) -> int:
        """Trained tokens."""
        return sum(example.trained_tokens for example in examples)

    def sums(self, backend: Backend, units: Sequence[tuple[Example, ...]]) -> dict[str, Tensor]:
        """Negative logprob and entropy, in nats."""
        rows = make_rows(units, backend.device, joined=self.joined)
        scores: TokenScores = backend(
            rows.token_ids,
            rows.rows,
            rows.places,
            rows.targets,
            rows.temperature,
            self.logprob_chunk,
            rows.positions,
            rows.bounds,
        )
        return {"loss": -scores.logprobs.sum(), "entropy": scores.entropy.detach().sum()}
