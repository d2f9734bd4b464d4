"""A reward model as a scorer: the scalar head's output at the last token of prompt and completion.

It reads the policy's token ids as they are, so its tokenizer must be the policy's: a model that the stage
`reward_model` trained from the same model is. torch and transformers are imported when it is loaded, not before.
"""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wire.contracts import RolloutGroup
from wire.errors import ConfigError, DataError

_FORWARD_TOKENS = 16_384
"""Tokens (padding included) of one forward pass."""


class RewardModel:
    """Scores all rollouts of a group in one forward pass (long ones in several)."""

    exclusive = True
    """A group's deadline begins with its own passes, not while it waits for those of others."""

    def __init__(self, *, path: str, device: str = "cpu", dtype: str = "float32") -> None:
        """Looks at the folder; raises ConfigError if it holds no reward model."""
        self._path, self._device, self._dtype = Path(path), device, dtype
        if dtype not in ("float32", "bfloat16"):
            raise ConfigError(f"reward_model: dtype {dtype!r} is not float32 or bfloat16")
        self._vocab_size = _check_folder(self._path)
        self._model: Any = None
        self._lock = threading.Lock()

    def load(self) -> None:
        """Loads the weights, unless they are. Raises ConfigError for a folder or device that does not work."""
        with self._lock:
            if self._model is None:
                self._model = _load(self._path, self._device, self._dtype)

    def __call__(self, group: RolloutGroup) -> list[float]:
        """One score a rollout, in order; a completion that was cut off is scored as it stands.

        Raises DataError for token ids that the model does not know.
        """
        self.load()
        prompt = group.prompt.token_ids
        texts = [np.concatenate([prompt, rollout.token_ids]) for rollout in group.rollouts]
        highest = max(int(text.max()) for text in texts)
        if highest >= self._vocab_size:
            raise DataError(
                f"reward_model: token {highest} is not among the {self._vocab_size} of {self._path}: a reward model "
                "must have the policy's tokenizer"
            )
        with self._lock:
            return [score for part in _parts(texts) for score in _forward(self._model, part)]


def _check_folder(path: Path) -> int:
    """The size of the vocabulary; raises ConfigError naming what is wrong with the folder."""
    file = path / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        kinds, labels = config.get("architectures") or [], config.get("id2label") or {}
        vocab_size = int(config.get("text_config", config)["vocab_size"])
    except FileNotFoundError:
        raise ConfigError(
            f"reward_model: {path} holds no model (no config.json); give the `export` folder of a run with "
            'run.stage = "reward_model"'
        ) from None
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"reward_model: {file}: {error!r}") from None
    if not any(str(kind).endswith("ForSequenceClassification") for kind in kinds) or len(labels) != 1:
        kind = ", ".join(map(str, kinds)) or "model of unknown kind"
        raise ConfigError(
            f"reward_model: {path} is a {kind} with {len(labels) or 2} "
            'labels, not a *ForSequenceClassification with one: train one with run.stage = "reward_model"'
        )
    return vocab_size


def _load(path: Path, device: str, dtype: str) -> Any:
    import torch
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model = AutoModelForSequenceClassification.from_pretrained(
            path, dtype=getattr(torch, dtype), use_safetensors=True, trust_remote_code=False, local_files_only=True
        )
        return model.to(device).eval()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"reward_model: {path} cannot be loaded on {device}: {error}") from error


def _parts(texts: Sequence[Any]) -> list[list[Any]]:
    """The rows of each forward pass, in order."""
    most = max(1, _FORWARD_TOKENS // max(len(text) for text in texts))
    return [list(texts[start : start + most]) for start in range(0, len(texts), most)]


def _forward(model: Any, texts: Sequence[Any]) -> list[float]:
    """Scores at the last tokens. Padding at the end changes nothing before it: the attention is causal."""
    import torch

    token_ids = torch.zeros(len(texts), max(len(text) for text in texts), dtype=torch.long)
    for row, text in enumerate(texts):
        token_ids[row, : len(text)] = torch.from_numpy(text.astype(np.int64))
    ends = torch.tensor([len(text) - 1 for text in texts])
    with torch.inference_mode():
        hidden = model.base_model(input_ids=token_ids.to(model.device), use_cache=False).last_hidden_state
        found = model.score(hidden[torch.arange(len(texts)), ends]).float()[:, 0]
    scores: list[float] = found.tolist()
    return scores
