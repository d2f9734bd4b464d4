"""Examples of the pretraining term that PPO-ptx mixes in (arXiv 2203.02155): the supervised stage's file."""

from pathlib import Path

import numpy as np

from services.trainer.assembly import TrainRollout
from services.trainer.stages.examples import read_examples


def read_ptx(path: Path) -> list[TrainRollout]:
    """All rows; raises DataError naming file, row and column."""
    return [
        TrainRollout(
            prompt_ids=example.token_ids[:1],
            completion_ids=example.token_ids[1:],
            behaviour_logprobs=np.zeros(len(example.token_ids) - 1, dtype=np.float32),
            current=np.zeros(len(example.token_ids) - 1, dtype=np.bool_),
            temperature=1.0,
            loss_mask=example.trained[1:],
        )
        for example in read_examples(path)
    ]
