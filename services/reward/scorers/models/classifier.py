"""A `*ForSequenceClassification` folder with one label: what the stage `reward_model` and the discriminator write."""

from collections.abc import Sequence
from typing import Any

from headrace.services.reward.scorers.models.loaded_model import LoadedModel, ModelKind
from headrace.services.reward.scorers.models.passes import TokenIds

ONE_LABEL = ModelKind(
    suffix="ForSequenceClassification",
    labels=1,
    way_out='give the `export` folder of a run with run.stage = "reward_model"',
)


class Classifier(LoadedModel[TokenIds, float]):
    """A loaded model: the head's output at the last token of a sequence."""

    kind = ONE_LABEL

    def _ids(self, row: TokenIds) -> TokenIds:
        return row

    def _values(self, rows: Sequence[TokenIds], hidden: Any) -> list[float]:
        import torch

        ends = torch.tensor([len(row) - 1 for row in rows])
        found: list[float] = self._model.score(hidden[torch.arange(len(rows)), ends]).float()[:, 0].tolist()
        return found
