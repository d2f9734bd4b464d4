"""A `*ForSequenceClassification` folder with one label: what the stage `reward_model` and the discriminator write.

torch and transformers are imported when one is loaded, not before.
"""

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headrace.services.reward import metrics
from headrace.services.reward.scorers.models.passes import TokenIds
from headrace.wire.errors import ConfigError

Dtype = Literal["float32", "bfloat16"]
_LOADING = threading.Lock()
"""transformers replaces torch's initializers for all threads while it loads: two loads at once leave them replaced."""
DIGEST_LENGTH = 16
"""Hex digits of a digest that identify a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierFacts:
    """Facts from the folder's config."""

    vocab_size: int
    context: int | None
    """Longest sequence, in tokens."""


class Classifier:
    """A loaded model: the head's output at the last token of a sequence."""

    def __init__(self, path: Path, *, device: str, dtype: Dtype, component: str) -> None:
        """Loads it: takes long. Raises ConfigError for a folder or device that does not work."""
        self.facts = read_facts(path, component)
        self._component = component
        self._model = _load(path, device, dtype, component)

    def problem(self, token_ids: TokenIds) -> str | None:
        """Why a sequence cannot be scored; None = it can."""
        highest = int(token_ids.max())
        if highest >= self.facts.vocab_size:
            return f"token {highest} is not among its {self.facts.vocab_size}: it must have the policy's tokenizer"
        if self.facts.context is not None and len(token_ids) > self.facts.context:
            return f"{len(token_ids)} tokens are more than its context of {self.facts.context}"
        return None

    def __call__(self, sequences: Sequence[TokenIds]) -> list[float]:
        """One forward pass. Padding at the end changes nothing before it: the attention is causal."""
        import torch

        longest = max(len(sequence) for sequence in sequences)
        token_ids = np.zeros((len(sequences), longest), np.int64)
        for row, sequence in enumerate(sequences):
            token_ids[row, : len(sequence)] = sequence
        ends = torch.tensor([len(sequence) - 1 for sequence in sequences])
        metrics.FORWARD_TOKENS.labels(self._component).inc(token_ids.size)
        with metrics.FORWARD_SECONDS.labels(self._component).time(), torch.inference_mode():
            inputs = torch.from_numpy(token_ids).to(self._model.device)
            hidden = self._model.base_model(input_ids=inputs, use_cache=False).last_hidden_state
            found = self._model.score(hidden[torch.arange(len(sequences)), ends]).float()[:, 0]
            scores: list[float] = found.tolist()
        return scores


def read_facts(path: Path, component: str) -> ClassifierFacts:
    """Looks at the folder's config; raises ConfigError naming what is wrong with it."""
    file = path / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        kinds, labels = config.get("architectures") or [], config.get("id2label") or {}
        text = config.get("text_config", config)
        vocab_size, context = int(text["vocab_size"]), text.get("max_position_embeddings")
    except FileNotFoundError:
        raise ConfigError(
            f"{component}: {path} holds no model (no config.json); give the `export` folder of a run with "
            'run.stage = "reward_model"'
        ) from None
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{component}: {file}: {error!r}") from None
    if not any(str(kind).endswith("ForSequenceClassification") for kind in kinds) or len(labels) != 1:
        kind = ", ".join(map(str, kinds)) or "model of unknown kind"
        raise ConfigError(
            f"{component}: {path} is a {kind} with {len(labels) or 2} "
            'labels, not a *ForSequenceClassification with one: train one with run.stage = "reward_model"'
        )
    return ClassifierFacts(vocab_size=vocab_size, context=context if isinstance(context, int) else None)


def folder_digest(path: Path) -> str:
    """First hex digits of the sha256 of a folder's config and weights."""
    state = hashlib.sha256()
    for file in sorted((path / "config.json", *path.glob("*.safetensors"))):
        state.update(file.name.encode())
        with file.open("rb") as data:
            state.update(hashlib.file_digest(data, "sha256").digest())
    return state.hexdigest()[:DIGEST_LENGTH]


def import_libraries(component: str) -> None:
    """Takes seconds; raises ConfigError with the way out if they are not installed."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(f"{component}: needs torch and transformers: pip install 'headrace[torch]'") from error


def _load(path: Path, device: str, dtype: Dtype, component: str) -> Any:
    import_libraries(component)
    import torch
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        with _LOADING:
            model = AutoModelForSequenceClassification.from_pretrained(
                path, dtype=getattr(torch, dtype), use_safetensors=True, trust_remote_code=False, local_files_only=True
            )
        return model.to(device).eval()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{component}: {path} cannot be loaded on {device}: {error}") from error
