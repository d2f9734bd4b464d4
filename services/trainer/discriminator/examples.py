"""What a discriminator learns from: the rollouts of a step, and the references of the same prompts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from services.trainer.assembly import scored_members
from services.trainer.discriminator_settings import reference_texts
from services.trainer.stages.examples import Example, TokenIds
from wire.contracts import PromptGroup, ScoredGroup
from wire.errors import ConfigError

Encode = Callable[[str], Sequence[int]]
"""From a text to token ids, without special tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A prompt and what follows it, said by the policy or by the data."""

    example: Example
    is_reference: bool
    share: float
    """Of its side: both sides weigh the same, however many references a prompt has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Finds the references of a prompt, as the policy would have to say them."""

    column: str
    encode: Encode
    end_id: int | None
    """The tokenizer's own end of a text."""

    def of(self, prompt: PromptGroup) -> list[TokenIds]:
        """int32 [completion] each, with a stop token at their end; none if the prompt's row has no reference."""
        texts = reference_texts(prompt.columns, self.column)
        return [self._ids(text, prompt.sampling.stop_token_ids) for text in texts]

    def _ids(self, text: str, stops: Sequence[int]) -> TokenIds:
        ids = list(self.encode(text))
        end = self.end_id if self.end_id in stops or not stops else stops[0]
        if end is not None and (not ids or ids[-1] not in (*stops, end)):
            ids.append(end)
        return np.array(ids, np.int32)


def read_references(column: str, model: Path) -> References:
    """Those of `column`, by the tokenizer of the policy's folder. Raises ConfigError if it has none."""
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(f"[discriminator] needs the tokenizer of model.path {model}: {error}") from error

    def encode(text: str) -> Sequence[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    return References(column=column, encode=encode, end_id=tokenizer.eos_token_id)


def labelled_examples(groups: Sequence[ScoredGroup], references: References) -> list[Labelled]:
    """Rollouts (label 0) and references (label 1) of the same prompts; a prompt without references gives neither."""
    ours: list[Example] = []
    theirs: list[Example] = []
    for scored in groups:
        prompt = scored.group.prompt
        found = [ids for ids in references.of(prompt) if len(ids)]
        if found:
            theirs += [_example(prompt.token_ids, ids) for ids in found]
            ours += [_example(prompt.token_ids, rollout.token_ids) for rollout, _, _ in scored_members(scored)]
    return [
        Labelled(example=example, is_reference=is_reference, share=1 / len(side))
        for side, is_reference in ((ours, False), (theirs, True))
        for example in side
    ]


def _example(prompt: TokenIds, completion: TokenIds) -> Example:
    token_ids = np.concatenate([prompt, completion]).astype(np.int32)
    return Example(token_ids, np.arange(len(token_ids)) >= len(prompt))
