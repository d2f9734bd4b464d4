"""What a discriminator learns from: the rollouts of a step, and the references of the same prompts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.services.trainer.config.discriminator import reference_texts
from headrace.services.trainer.durability.staleness import scored_rollouts
from headrace.services.trainer.stages.offline.examples import Example, TokenIds
from headrace.wire.contracts import PromptGroup, ScoredGroup
from headrace.wire.rendering.tokenizers import load_tokenizer

Encode = Callable[[str], Sequence[int]]
"""From a text to token ids, without special tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A prompt and a completion of it, from the policy or from the data."""

    example: Example
    is_reference: bool
    share: float
    """Weight within its side: both sides weigh the same, however many references a prompt has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Finds the references of a prompt and encodes them as completions of the policy."""

    column: str
    encode: Encode
    end_id: int | None
    """The tokenizer's end-of-text token."""

    def of(self, prompt: PromptGroup) -> list[TokenIds]:
        """Returns int32 [completion] per reference, each ending in a stop token; none if the row has no reference."""
        texts = reference_texts(prompt.columns, self.column)
        return [self._ids(text, prompt.sampling.stop_token_ids) for text in texts]

    def _ids(self, text: str, stops: Sequence[int]) -> TokenIds:
        ids = list(self.encode(text))
        end = self.end_id if self.end_id in stops or not stops else stops[0]
        if end is not None and (not ids or ids[-1] not in (*stops, end)):
            ids.append(end)
        return np.array(ids, np.int32)


def read_references(column: str, model: Path) -> References:
    """Returns the references in `column`, encoded by the tokenizer of the folder `model`.

    Raises ConfigError if the folder has no tokenizer.
    """
    tokenizer = load_tokenizer(model)

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
            ours += [_example(prompt.token_ids, rollout.token_ids) for rollout, _ in scored_rollouts(scored)]
    return [
        Labelled(example=example, is_reference=is_reference, share=1 / len(side))
        for side, is_reference in ((ours, False), (theirs, True))
        for example in side
    ]


def _example(prompt: TokenIds, completion: TokenIds) -> Example:
    token_ids = np.concatenate([prompt, completion]).astype(np.int32)
    return Example(token_ids, np.arange(len(token_ids)) >= len(prompt))
