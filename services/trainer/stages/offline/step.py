"""The parts shared by the stages on given examples: optimizer step, evaluation, and the order of examples.

All are functions of examples and seed, for any number of ranks and size of micro-batches.
"""

import hashlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from headrace.services.trainer.algorithms.batching import Share, shared_micro_batches
from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.config.stage import StageTable
from headrace.services.trainer.step.reductions import MODEL_FLOPS, as_floats
from headrace.services.trainer.throughput.flops import training_flops

E = TypeVar("E")


class Objective(Protocol[E]):
    """The interface between one stage and the training loop."""

    def units(self, examples: Sequence[E]) -> list[tuple[E, ...]]:
        """Splits examples into units, each of which goes through the model in one micro-batch."""
        ...

    def tokens(self, unit: tuple[E, ...]) -> int:
        """Tokens of the unit's forward pass, including its padding."""
        ...

    def rows(self, unit: tuple[E, ...]) -> list[tuple[int, int]]:
        """For each sequence in the unit: tokens that go through the model, and how many the head is applied to."""
        ...

    def learned(self, unit: tuple[E, ...]) -> int:
        """Tokens that the step learns from: those with a logprob in the loss; for a reward model all that are read."""
        ...

    def weight(self, examples: Sequence[E]) -> int:
        """The denominator of the means of `sums`: trained tokens, or pairs."""
        ...

    def sums(self, backend: Backend, units: Sequence[tuple[E, ...]]) -> dict[str, Tensor]:
        """Sums over what `weight` counts; `loss` carries the gradient. The names are the same every time."""
        ...


class OfflineStep(Generic[E]):
    """Steps and evaluations of one objective on one backend. Every rank calls both, in the same order."""

    def __init__(
        self,
        backend: Backend,
        objective: Objective[E],
        *,
        micro_batch_tokens: int,
        peaks: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """`peaks`: peak usage of this rank since the previous call, under the same names on every rank."""
        self._backend, self._objective = backend, objective
        self._budget = micro_batch_tokens
        self._peaks = peaks

    def train(self, examples: Sequence[E], *, learning_rate: float, grad_clip: float) -> dict[str, float]:
        """Runs one optimizer step on the mean loss of all `examples`; returns the means before it, and its cost.

        Of each peak the largest over all ranks, unless that is 0.
        """
        weight = self._objective.weight(examples)
        totals: dict[str, Tensor | float] = {}
        units, shares = self._shares(examples)
        for number, share in enumerate(shares):
            sums = self._objective.sums(self._backend, [units[row] for row in share.rows])
            loss = sums["loss"] / weight
            self._backend.backward(loss if share.counts else loss * 0.0, last=number == len(shares) - 1)
            _add(totals, sums, share)
        norm = self._backend.apply(learning_rate=learning_rate, grad_clip=grad_clip)
        means, most = self._means_and_most(as_floats(totals), weight, self._peaks())
        return means | {
            "grad_norm": norm,
            "learning_rate": learning_rate,
            "skipped": float(not math.isfinite(norm)),
            **self._work(units),
            **{name: value for name, value in most.items() if value},
        }

    def evaluate(self, examples: Sequence[E]) -> dict[str, float]:
        """Returns the means over `examples` without training."""
        totals: dict[str, Tensor | float] = {}
        units, shares = self._shares(examples)
        with torch.no_grad():
            for share in shares:
                _add(totals, self._objective.sums(self._backend, [units[row] for row in share.rows]), share)
        return self._means(as_floats(totals), self._objective.weight(examples))

    def _work(self, units: Sequence[tuple[E, ...]]) -> dict[str, float]:
        """The work of one pass over all units, whichever rank does it."""
        rows = [row for unit in units for row in self._objective.rows(unit)]
        return {
            "trained_tokens": float(sum(self._objective.learned(unit) for unit in units)),
            MODEL_FLOPS: float(training_flops(self._backend.module.compute, rows)),
        }

    def _shares(self, examples: Sequence[E]) -> tuple[list[tuple[E, ...]], list[Share]]:
        units = self._objective.units(examples)
        shares = shared_micro_batches(
            [self._objective.tokens(unit) for unit in units],
            ranks=self._backend.ranks.data_size,
            token_budget=self._budget * self._backend.ranks.context_size,
            overhead_tokens=self._backend.overhead_tokens,
        )
        return units, shares[self._backend.ranks.data_rank]

    def _means(self, totals: Mapping[str, float], weight: int) -> dict[str, float]:
        return self._means_and_most(totals, weight, {})[0]

    def _means_and_most(
        self, totals: Mapping[str, float], weight: int, peaks: Mapping[str, float]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Sums means and peaks in one collective: each rank writes its peaks to places that the others leave at 0."""
        ranks = self._backend.ranks
        places = torch.zeros(ranks.size, len(peaks), dtype=torch.float64)
        places[ranks.rank] = torch.tensor(list(peaks.values()), dtype=torch.float64)
        sums = torch.tensor(list(totals.values()), dtype=torch.float64)
        if ranks.rank % ranks.context_size:
            sums = torch.zeros_like(sums)
        whole = ranks.sum(torch.cat([sums, places.flatten()]))
        means = {name: total / weight for name, total in zip(totals, whole[: len(sums)].tolist(), strict=True)}
        if not peaks:
            return means, {}
        most = whole[len(sums) :].view_as(places).amax(dim=0)
        return means, dict(zip(peaks, most.tolist(), strict=True))


def _add(totals: dict[str, Tensor | float], sums: Mapping[str, Tensor], share: Share) -> None:
    """Adds in float64 and in the fixed order of micro-batches."""
    for name, value in sums.items():
        totals[name] = totals.get(name, 0.0) + (value.detach().double() if share.counts else 0.0)


class Plan:
    """Which examples each step trains. Epochs follow each other without a gap, each in an order of its own."""

    def __init__(self, table: StageTable, count: int, seed: int) -> None:
        """`count`: how many examples there are."""
        self._count, self._seed = count, seed
        self._batch = min(table.batch_size, count)
        self._total = table.steps * self._batch if table.steps else max(1, round(table.epochs * count))
        self.steps = math.ceil(self._total / self._batch)
        self._orders: dict[int, list[int]] = {}

    def rows(self, step: int) -> list[int]:
        """Indices of the examples of step `step`, from 1; the last step may have fewer."""
        first = (step - 1) * self._batch
        return [self._row(place) for place in range(first, min(first + self._batch, self._total))]

    def epoch(self, step: int) -> float:
        """How often all examples have been seen after `step`."""
        return min(step * self._batch, self._total) / self._count

    def _row(self, place: int) -> int:
        epoch, number = divmod(place, self._count)
        if epoch not in self._orders:
            digest = hashlib.blake2b(f"{self._seed}|{epoch}".encode(), digest_size=8).digest()
            order = list(range(self._count))
            random.Random(int.from_bytes(digest, "little")).shuffle(order)
            self._orders = {epoch - 1: self._orders.get(epoch - 1, []), epoch: order}
        return self._orders[epoch][number]
