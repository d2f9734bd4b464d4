"""Teachers in small: what transformers says of a sample's tokens, one segment at a time, and samples to score."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headrace.services.reward.rubric.samples import samples_of
from headrace.services.reward.scorer import Sample
from tests import builders
from tests.unit.services.trainer.builders import tiny_model

SEQUENCES = (
    [([5, 6, 7], [4, 23, 7, 1])],
    [([5, 6], [3, 9, 4]), ([5, 7, 8], [5, 1])],
)
"""Context and what follows it, of each segment of the samples. 23 is the last token of the vocabulary."""


class Reference:
    """A language model, and an independent forward pass of it in float64."""

    def __init__(self, folder: Path, seed: int = 5) -> None:
        self.model, self.folder = tiny_model(seed, layers=2).eval(), folder
        self.model.save_pretrained(folder)
        self.model.double()

    def logprobs(self, ids: Sequence[int], temperature: float = 1.0) -> Any:
        """float64 [sequence - 1, vocab]: of each token but the first."""
        with torch.no_grad():
            logits = self.model(torch.tensor([list(ids)])).logits[0, :-1]
        return torch.log_softmax(logits / temperature, dim=-1).numpy()

    def gaps(self, number: int, sample: Sample) -> Any:
        """The negative reverse KL of each token of a sample; NaN where masked."""
        parts = []
        for context, said in SEQUENCES[number]:
            whole = self.logprobs([*context, *said], sample.temperature)[len(context) - 1 :]
            parts.append(whole[np.arange(len(said)), said])
        gap = np.concatenate(parts) - sample.logprobs
        return gap if sample.loss_mask is None else np.where(sample.loss_mask, gap, np.nan)


def samples(temperature: float = 1.0) -> list[Sample]:
    """A completion, and an episode of two segments with a masked token."""
    episode = samples_of(builders.played_group(), "g")[0]
    completion = replace(
        episode,
        episode=None,
        prompt="567",
        prompt_ids=np.array(SEQUENCES[0][0][0], np.int32),
        completion_ids=np.array(SEQUENCES[0][0][1], np.int32),
        logprobs=np.array([-1.5, -2.0, -3.25, -0.5], np.float32),
        loss_mask=None,
    )
    return [replace(one, temperature=temperature) for one in (completion, episode)]
