"""A model folder that is loaded to score with: classifiers with one label, and language models.

torch and transformers are imported when one is loaded, not before.
"""

import hashlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal

import numpy as np

from headrace.services.reward import metrics
from headrace.services.reward.scorers.models.passes import RowT, TokenIds, ValueT
from headrace.wire.errors import ConfigError

Dtype = Literal["float32", "bfloat16"]
_LOADING = threading.Lock()
"""transformers replaces torch's initializers for all threads while it loads: two loads at once leave them replaced."""
DIGEST_LENGTH = 16
"""Hex digits of a digest that identify a version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts:
    """Facts from the folder's config."""

    vocab_size: int
    context: int | None
    """Longest sequence, in tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelKind:
    """The models that a scorer takes."""

    suffix: str
    """How the names of their classes end."""
    way_out: str
    """What to give in place of another folder."""
    labels: int | None = None
    """Outputs of their head; None = tokens."""


class LoadedModel(ABC, Generic[RowT, ValueT]):
    """Finds a value of each row in a forward pass."""

    kind: ClassVar[ModelKind]

    def __init__(self, path: Path, *, device: str, dtype: Dtype, component: str) -> None:
        """Loads it: takes long. Raises ConfigError for a folder or device that does not work."""
        self.facts = read_facts(path, component, self.kind)
        self._component = component
        self._model = _load(path, device, dtype, component, self.kind)

    def problem(self, token_ids: TokenIds) -> str | None:
        """Why a sequence cannot be scored; None = it can."""
        highest = int(token_ids.max())
        if highest >= self.facts.vocab_size:
            return f"token {highest} is not among its {self.facts.vocab_size}: it must have the policy's tokenizer"
        if self.facts.context is not None and len(token_ids) > self.facts.context:
            return f"{len(token_ids)} tokens are more than its context of {self.facts.context}"
        return None

    def __call__(self, rows: Sequence[RowT]) -> list[ValueT]:
        """One forward pass. Padding at the end changes nothing before it: the attention is causal."""
        import torch

        token_ids = np.zeros((len(rows), max(len(row) for row in rows)), np.int64)
        for number, row in enumerate(rows):
            token_ids[number, : len(row)] = self._ids(row)
        metrics.FORWARD_TOKENS.labels(self._component).inc(token_ids.size)
        with metrics.FORWARD_SECONDS.labels(self._component).time(), torch.inference_mode():
            inputs = torch.from_numpy(token_ids).to(self._model.device)
            hidden = self._model.base_model(input_ids=inputs, use_cache=False).last_hidden_state
            return self._values(rows, hidden)

    @abstractmethod
    def _ids(self, row: RowT) -> TokenIds:
        """int32 [len(row)]"""

    @abstractmethod
    def _values(self, rows: Sequence[RowT], hidden: Any) -> list[ValueT]:
        """From the hidden states [rows, longest, width]."""


def read_facts(path: Path, component: str, wanted: ModelKind) -> FolderFacts:
    """Looks at the folder's config; raises ConfigError naming what is wrong with it."""
    file = path / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        kinds, labels = config.get("architectures") or [], config.get("id2label") or {}
        text = config.get("text_config", config)
        vocab_size, context = int(text["vocab_size"]), text.get("max_position_embeddings")
    except FileNotFoundError:
        raise ConfigError(f"{component}: {path} holds no model (no config.json); {wanted.way_out}") from None
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{component}: {file}: {error!r}") from None
    is_other = wanted.labels is not None and len(labels) != wanted.labels
    if is_other or not any(str(kind).endswith(wanted.suffix) for kind in kinds):
        found = ", ".join(map(str, kinds)) or "model of unknown kind"
        heads = "" if wanted.labels is None else f" with {wanted.labels} label"
        other = "" if wanted.labels is None else f" with {len(labels) or 2} labels"
        raise ConfigError(f"{component}: {path} is a {found}{other}, not a *{wanted.suffix}{heads}: {wanted.way_out}")
    return FolderFacts(vocab_size=vocab_size, context=context if isinstance(context, int) else None)


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


def _load(path: Path, device: str, dtype: Dtype, component: str, wanted: ModelKind) -> Any:
    import_libraries(component)
    import torch
    import transformers
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        with _LOADING:
            model = getattr(transformers, f"AutoModel{wanted.suffix}").from_pretrained(
                path, dtype=getattr(torch, dtype), use_safetensors=True, trust_remote_code=False, local_files_only=True
            )
        return model.to(device).eval()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{component}: {path} cannot be loaded on {device}: {error}") from error
