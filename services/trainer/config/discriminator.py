"""`[discriminator]`. Imports no torch."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from headrace.wire.config.settings import Table


def reference_texts(columns: Mapping[str, object], column: str) -> list[str]:
    """The references of a data row: its `column` is a text, or a list of texts; none if it is absent or null."""
    given = columns.get(column)
    texts = given if isinstance(given, list) else [given]
    return [str(text) for text in texts if text is not None]


class DiscriminatorTable(Table):
    """`[discriminator]`: a classifier that learns to tell rollouts from references, for the scorer of that name."""

    every: int = Field(0, ge=0)
    """Steps between two updates, each on the rollouts of its step; 0 = no discriminator."""
    path: Path = Path()
    """Folder of the initial model: a language model or a reward model; empty = `model.path`."""
    reference: str = Field("answer", min_length=1)
    """Data column with the reference answers: a text, or a list of texts."""
    learning_rate: float = Field(1e-5, gt=0)
    """Constant."""
    weight_decay: float = Field(0.0, ge=0)
    """Applies to matrices only."""
    grad_clip: float = Field(1.0, ge=0)
    """Largest norm of the gradient; 0 = no clipping."""
    epochs: int = Field(1, ge=1)
    """Optimizer steps of one update, each on all its examples."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Moves the labels 0 and 1 by this share towards one half: a surer discriminator teaches a policy less."""
