"""Several models may be loaded at the same time, and nothing of torch or transformers stays replaced."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForSequenceClassification

from headrace.services.reward.scorers.models.classifier import Classifier


def test_models_that_are_loaded_at_once_leave_nothing_replaced(tmp_path: Path) -> None:
    config = Qwen3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=8,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        num_labels=1,
    )
    Qwen3ForSequenceClassification(config).save_pretrained(tmp_path)
    ties, draws = PreTrainedModel.tie_weights, torch.nn.init.normal_
    ids = np.array([5, 6], np.int32)
    with ThreadPoolExecutor(4) as threads:
        for _ in range(40):
            loading = [
                threads.submit(Classifier, tmp_path, device="cpu", dtype="float32", component="x") for _ in range(4)
            ]
            assert len({tuple(one.result()([ids])) for one in loading}) == 1
    assert PreTrainedModel.tie_weights is ties and torch.nn.init.normal_ is draws
