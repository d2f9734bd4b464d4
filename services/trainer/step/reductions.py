"""Sums of a step over its micro-batches, updates and ranks, and the metrics they become."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from headrace.services.trainer.algorithms.mismatch import LARGEST, mismatch_metrics
from headrace.services.trainer.distributed.collectives import Ranks

_OF_GAP = "logprob_gap"
_OF_VALUE = "value_"
MODEL_FLOPS = "model_flops"
"""Total over all updates: it is not averaged."""


def as_floats(values: Mapping[str, Tensor | float]) -> dict[str, float]:
    """The values, with those on a device read at once."""
    waiting = [value for value in values.values() if isinstance(value, Tensor)]
    read = iter(torch.stack(waiting).tolist() if waiting else [])
    return {name: next(read) if isinstance(value, Tensor) else value for name, value in values.items()}


class Sums:
    """Sums in float64, in a fixed order. Every rank adds under the same names.

    Values of tensors stay on their device until the step is over: the host would wait for each that it reads.
    """

    def __init__(self) -> None:
        self._totals: dict[str, Tensor | float] = {}
        self._largest: dict[str, Tensor | float] = {}

    def add(self, name: str, values: Tensor | float) -> None:
        """Adds all of `values`."""
        value = values.detach().double().sum() if isinstance(values, Tensor) else values
        self._totals[name] = self._totals.get(name, 0.0) + value

    def most(self, name: str, values: Tensor | float) -> None:
        """Keeps the largest value; 0 without any, NaN if one of them is. A name has tensors or numbers, not both."""
        before = self._largest.get(name, 0.0)
        if not isinstance(values, Tensor):
            self._largest[name] = values if math.isnan(values) or values > before else before
        elif values.numel():
            largest = values.detach().double().max()
            keeps = torch.maximum(largest, before) if isinstance(before, Tensor) else largest.clamp_min(before)
            self._largest[name] = keeps
        else:
            self._largest[name] = before

    def mismatch(self, kind: str, sums: Mapping[str, Tensor]) -> None:
        """Adds `mismatch_sums` under `kind`."""
        for name, value in sums.items():
            (self.most if name == LARGEST else self.add)(f"{kind}/{name}", value)

    def over(self, ranks: Ranks) -> "Sums":
        """Sums over the data-parallel ranks; the largest of all ranks."""
        if ranks.size == 1:
            return self
        joined = Sums()
        for mine, whole, together, every in (
            (as_floats(self._totals), joined._totals, torch.sum, ranks.context_size),
            (as_floats(self._largest), joined._largest, torch.amax, 1),
        ):
            names = sorted(mine)
            vector = torch.tensor([mine[name] for name in names], dtype=torch.float64)
            parts = torch.stack(ranks.gather(vector)[::every]) if names else vector[None]
            whole.update(zip(names, together(parts, dim=0).tolist(), strict=True))
        return joined

    def metrics(self) -> dict[str, float]:
        """Means over trained tokens, of all updates; losses are means over updates; gaps over the tokens that count.

        Gaps are absent if no token was compared.
        """
        totals, most = as_floats(self._totals), as_floats(self._largest)
        tokens = max(totals.pop("tokens", 0.0), 1.0)
        updates = max(totals.pop("updates", 0.0), 1.0)
        value_updates = max(totals.pop("value_updates", 0.0), 1.0)
        gap_tokens = totals.pop(f"{_OF_GAP}_tokens", 0.0)
        # Without a compared token the gap is absent, not 0.
        absent = () if gap_tokens else [name for name in (*totals, *most) if name.startswith(_OF_GAP)]
        found = {MODEL_FLOPS: totals.pop(MODEL_FLOPS, 0.0)}
        kinds: dict[str, dict[str, float]] = {}
        for name, total in totals.items():
            if name in absent:
                continue
            kind, slash, part = name.partition("/")
            if slash:
                kinds.setdefault(kind, {})[part] = total
            elif name.endswith("loss"):
                found[name] = total / (value_updates if name.startswith(_OF_VALUE) else updates)
            elif name.startswith(_OF_GAP):
                found[name] = total / gap_tokens
            else:
                found[name] = total / tokens
        for kind, sums in kinds.items():
            whole = sums | {LARGEST: most.get(f"{kind}/{LARGEST}", 0.0)}
            made = mismatch_metrics({name: torch.tensor(value, dtype=torch.float64) for name, value in whole.items()})
            found |= {f"{kind}_{name}": value for name, value in made.items()}
            if kind != "mismatch":
                found[f"{kind}_tokens"] = sums["tokens"]
        largest = {name: value for name, value in most.items() if "/" not in name and name not in absent}
        return found | largest | {f"{_OF_GAP}_tokens": gap_tokens}
