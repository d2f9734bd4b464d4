"""The tokenizer of a model folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.wire.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_tokenizer(model: Path) -> "PreTrainedTokenizerBase":
    """The model's tokenizer, offline and without remote code. Raises ConfigError if the folder has none."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoTokenizer

    try:
        found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            model, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, TypeError, StrictDataclassError) as error:
        raise ConfigError(f"model.path: {model} has no readable tokenizer: {error}") from error
    return found
