"""The model folder's tokenizer, used in one direction only: completions become text for scorers and people."""

from pathlib import Path

from services.rollout.engines.protocol import Completion
from wire.contracts import FinishReason
from wire.errors import ConfigError


class TextDecoder:
    """Token ids to text."""

    def __init__(self, model_path: Path) -> None:
        """Raises ConfigError if the folder has no tokenizer. Nothing is fetched and no code of the folder is run."""
        from transformers import AutoTokenizer

        try:
            self.tokenizer = AutoTokenizer.from_pretrained(model_path, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"model.path: {model_path} has no readable tokenizer: {error}") from error

    def decode(self, completion: Completion) -> str:
        """The completion's text without its stop token and without special tokens."""
        ids = completion.token_ids
        if completion.finish_reason is FinishReason.STOP:
            ids = ids[:-1]
        text: str = self.tokenizer.decode(ids.tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text
