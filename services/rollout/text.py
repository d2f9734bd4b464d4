"""Decodes completions to text, for scorers and people, with the model folder's tokenizer."""

from pathlib import Path

from headrace.services.rollout import metrics
from headrace.services.rollout.engines.protocol import Completion
from headrace.wire.contracts import FinishReason
from headrace.wire.rendering.tokenizers import load_tokenizer


class TextDecoder:
    """Decodes token ids to text."""

    def __init__(self, model_path: Path) -> None:
        """Raises ConfigError if the folder has no readable tokenizer."""
        self.tokenizer = load_tokenizer(model_path)

    def decode(self, completion: Completion) -> str:
        """The completion's text without its stop token; padding within it is left out and counted.

        Other special tokens stay: a model may write its thoughts and calls between such.
        """
        ids = completion.token_ids
        if completion.finish_reason is FinishReason.STOP:
            ids = ids[:-1]
        kept = ids[ids != self.tokenizer.pad_token_id] if self.tokenizer.pad_token_id is not None else ids
        metrics.PADDING.inc(len(ids) - len(kept))
        text: str = self.tokenizer.decode(kept.tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text
