"""A classifier trained against fresh rollouts from references, and published for the scorer of that name.

Its updates are part of the step: a function of the step's batch and of what it was, the same whatever the ranks and
micro-batches, and made again by a replay. Every rank calls the same methods in order.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from services.trainer.backends.backend import Backend
from services.trainer.discriminator.examples import Labelled, References, labelled_examples
from services.trainer.discriminator.objective import TellApart
from services.trainer.discriminator.shelf import Shelf
from services.trainer.discriminator_settings import DiscriminatorTable
from services.trainer.export import export_model
from services.trainer.stages.offline import OfflineStep
from wire.contracts import ScoredGroup
from wire.telemetry import get_logger

_PREFIX = "discriminator_"
"""Of its metrics."""
log = get_logger("trainer.discriminator")


class Discriminator:
    """See the module. Version v is what it was after the update of step v; 0 before the first."""

    def __init__(
        self, table: DiscriminatorTable, backend: Backend, references: References, *, micro_batch_tokens: int
    ) -> None:
        self._table = table
        self._references = references
        self._step = OfflineStep(
            backend, TellApart(label_smoothing=table.label_smoothing), micro_batch_tokens=micro_batch_tokens
        )
        self._published: int | None = None
        self.backend = backend
        self.version = 0

    def examples(self, step: int, groups: Sequence[ScoredGroup]) -> list[Labelled] | None:
        """What the update of `step` learns from, empty without references; None = the step has no update."""
        return None if step % self._table.every else labelled_examples(groups, self._references)

    def train(self, step: int, examples: Sequence[Labelled]) -> dict[str, float]:
        """The update of `step`: what there is to tell of it, as it was before it. Without examples there is none."""
        count = sum(labelled.is_reference for labelled in examples)
        if not examples:
            log.warning("discriminator_without_references", step=step, column=self._references.column)
            return {f"{_PREFIX}references": count}
        found = [
            self._step.train(examples, learning_rate=self._table.learning_rate, grad_clip=self._table.grad_clip)
            for _ in range(self._table.epochs)
        ]
        self.version = step
        told = {name: found[0][name] for name in ("loss", "accuracy_rollouts", "accuracy_references", "grad_norm")}
        told["skipped"] = max(each["skipped"] for each in found)
        told["references"] = count
        return {f"{_PREFIX}{name}": value for name, value in told.items()}

    def publish(self, folder: Path, source: Path, *, dtype: torch.dtype) -> None:
        """Puts the version on the shelf at `folder`, unless this life has; with the tokenizer of `source`."""
        if self.version == self._published:
            return
        if self.backend.ranks.rank == 0:
            Shelf(folder).put(self.version, lambda target: export_model(self.backend, source, target, dtype=dtype))
        else:
            export_model(self.backend, source, folder, dtype=dtype)
        self._published = self.version

    def save(self) -> dict[str, dict[str, Tensor]]:
        """Weights and optimizer, whole, on the CPU of rank 0."""
        keeps = self.backend.ranks.rank == 0
        weights = {name: tensor for name, tensor in self.backend.whole_weights() if keeps}
        return {"discriminator": weights, "discriminator-optimizer": self.backend.optimizer_tensors()}

    def load(self, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], *, version: int) -> None:
        """What a checkpoint holds; raises ValueError if it is another model's."""
        self.backend.load(weights, optimizer)
        self.version, self._published = version, None
