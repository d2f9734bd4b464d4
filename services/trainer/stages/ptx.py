"""Examples for the pretraining term of PPO-ptx (arXiv 2203.02155), from a file of the supervised stage."""

from pathlib import Path

import numpy as np

from headrace.services.trainer.stages.offline.examples import read_examples
from headrace.services.trainer.step.batch import TrainRollout


def read_ptx(path: Path) -> list[TrainRollout]:
    """Reads all rows; raises DataError naming file, row and column."""
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
