"""The supervised stage: next-token loss on completions, the mean over all trained tokens of a step."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from headrace.services.trainer.algorithms.logprobs import TokenScores
from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.stages.offline.examples import Example
from headrace.services.trainer.stages.offline.packing import pack
from headrace.services.trainer.stages.offline.rows import make_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """Implements `headrace.services.trainer.stages.offline.step.Objective` with the next-token loss."""

    pack_tokens: int
    """Capacity of a row; 0 = a row for each example."""
    logprob_chunk: int
    joined: bool = False
    """The rows of a pass are joined to one: see `headrace.services.trainer.stages.offline.packing_check`."""

    def units(self, examples: Sequence[Example]) -> list[tuple[Example, ...]]:
        """Packs examples into rows; without packing each example is a unit."""
        if not self.pack_tokens:
            return [(example,) for example in examples]
        rows = pack([example.row_tokens for example in examples], capacity=self.pack_tokens)
        return [tuple(examples[number] for number in row) for row in rows]

    def tokens(self, unit: tuple[Example, ...]) -> int:
        """Counts the row's tokens."""
        return sum(example.row_tokens for example in unit)

    def rows(self, unit: tuple[Example, ...]) -> list[tuple[int, int]]:
        """Returns each example as a sequence of its own: packed examples do not see each other."""
        return [(example.row_tokens, example.trained_tokens) for example in unit]

    def learned(self, unit: tuple[Example, ...]) -> int:
        """Counts trained tokens."""
        return self.weight(unit)

    def weight(self, examples: Sequence[Example]) -> int:
        """Counts trained tokens."""
        return sum(example.trained_tokens for example in examples)

    def sums(self, backend: Backend, units: Sequence[tuple[Example, ...]]) -> dict[str, Tensor]:
        """Sums negative logprob and entropy, in nats."""
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
