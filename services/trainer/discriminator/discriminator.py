"""A classifier trained to separate fresh rollouts from references, and published for the scorer of that name.

Its updates are part of the step: a function of the step's batch and of the version before, for any number of ranks
and micro-batches, and repeated by a replay. Every rank calls the same methods in order.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.config.discriminator import DiscriminatorTable
from headrace.services.trainer.discriminator.examples import Labelled, References, labelled_examples
from headrace.services.trainer.discriminator.objective import TellApart
from headrace.services.trainer.discriminator.version_store import VersionStore
from headrace.services.trainer.export.model_folder import export_model
from headrace.services.trainer.stages.offline.step import OfflineStep
from headrace.wire.contracts import ScoredGroup
from headrace.wire.telemetry.logs import get_logger

_PREFIX = "discriminator_"
"""Prefix of its metrics' names."""
log = get_logger("trainer.discriminator")


class DiscriminatorTrainer:
    """Trains and publishes the discriminator.

    Version v is its state after the update of step v; 0 before the first.
    """

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
        """Runs the update of `step` and returns its metrics, taken before it. Without examples there is no update."""
        count = sum(labelled.is_reference for labelled in examples)
        if not examples:
            log.warning("discriminator_without_references", step=step, column=self._references.column)
            return {f"{_PREFIX}references": count}
        found = [
            self._step.train(examples, learning_rate=self._table.learning_rate, grad_clip=self._table.grad_clip)
            for _ in range(self._table.epochs)
        ]
        self.version = step
        reported = {name: found[0][name] for name in ("loss", "accuracy_rollouts", "accuracy_references", "grad_norm")}
        reported["skipped"] = max(each["skipped"] for each in found)
        reported["references"] = count
        return {f"{_PREFIX}{name}": value for name, value in reported.items()}

    def publish(self, folder: Path, source: Path, *, dtype: torch.dtype) -> None:
        """Publishes the current version in `folder`, with the tokenizer of `source`, unless this life already has."""
        if self.version == self._published:
            return
        if self.backend.ranks.rank == 0:
            VersionStore(folder).put(
                self.version, lambda target: export_model(self.backend, source, target, dtype=dtype)
            )
        else:
            export_model(self.backend, source, folder, dtype=dtype)
        self._published = self.version

    def load(self, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], *, version: int) -> None:
        """Restores weights and optimizer from a checkpoint; raises ValueError if it is another model's."""
        self.backend.load(weights, optimizer)
        self.version, self._published = version, None
