"""A reward model as a scorer: the scalar head's output at the last token of prompt and completion.

It reads the policy's token ids as they are, of an episode all of its last segment, so its tokenizer must be the
policy's: a model that the stage `reward_model` trained from the same model has it. An episode that came as text is
rendered with the model's own chat template, or not scored: its last message alone is not what the policy did.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from headrace.services.reward.scorer import Context, Sample, Scorer, Verdict
from headrace.services.reward.scorers.models.classifier import ONE_LABEL, Classifier
from headrace.services.reward.scorers.models.loaded_model import Dtype, folder_digest, read_facts
from headrace.services.reward.scorers.models.passes import Passes, TokenIds
from headrace.services.reward.scorers.models.sequences import TemplateChoice, TextTokenizer, UnrenderedError
from headrace.wire.config.settings import Table
from headrace.wire.errors import DataError

RANGE = 1e6
"""A head's output has no bound; beyond this it is broken."""


class Normalize(Table):
    """What makes the scales of several reward models comparable: (score - mean) / std."""

    mean: float = 0.0
    std: float = Field(1.0, gt=0)


class PassOptions(Table):
    """Options of every scorer that is a model in this service."""

    device: str = "cpu"
    """torch device: `cpu`, `cuda:0`."""
    dtype: Dtype = "float32"
    """dtype of the weights and of the computation."""
    max_tokens: int = Field(16_384, ge=1)
    """Most tokens of one forward pass, padding included: bounds its memory. A longer sequence is alone."""
    join: bool = True
    """Groups that come at the same time share forward passes. Off: a group's scores are the same bits whatever else is
    scored."""


class ModelOptions(PassOptions):
    """Options of every scorer that gives a sequence one number."""

    chat_template: TemplateChoice = "auto"
    """For samples of text (file, HTTP): `auto` takes the folder's template if it has one. Without one a conversation of
    several messages abstains."""


class RewardModelOptions(ModelOptions):
    """Options of `reward_model`."""

    path: Path
    """The `export` folder of a run with run.stage = "reward_model"."""
    normalize: Normalize = Normalize()


class ModelSequences:
    """Scores samples with one loaded model."""

    def __init__(self, classifier: Classifier, path: Path, options: ModelOptions, context: Context) -> None:
        """`path` holds the tokenizer, for samples of text."""
        self.classifier = classifier
        self._path, self._options, self._component = path, options, context.component
        self._tokenizer: TextTokenizer | None = None
        self.passes = Passes(
            classifier,
            max_tokens=options.max_tokens,
            deadline_s=context.timeout_s,
            what=f"the scorer {context.component}",
            joined=options.join,
        )

    async def score(self, samples: Sequence[Sample]) -> list[float | Verdict]:
        """The head's output for each sample, or a verdict without one. Raises what `Passes.run` raises."""
        if any(sample.sequence_ids is None for sample in samples):
            rows = await asyncio.to_thread(lambda: [self._row(sample) for sample in samples])
        else:
            rows = [self._row(sample) for sample in samples]
        sound = [row for row in rows if not isinstance(row, Verdict)]
        found = iter(await self.passes.run(sound))
        return [row if isinstance(row, Verdict) else next(found) for row in rows]

    def _row(self, sample: Sample) -> TokenIds | Verdict:
        try:
            ids = sample.sequence_ids
            ids = self._text(sample) if ids is None else ids
        except UnrenderedError as error:
            return Verdict.abstain(str(error))
        except DataError as error:
            return Verdict.failure(str(error))
        problem = self.classifier.problem(ids)
        return Verdict.failure(problem) if problem else ids

    def _text(self, sample: Sample) -> TokenIds:
        if self._tokenizer is None:
            self._tokenizer = TextTokenizer(
                self._path, chat_template=self._options.chat_template, component=self._component
            )
        if sample.episode is None:
            return self._tokenizer.ids(sample.prompt, sample.completion)
        if (conversation := sample.conversation) is None:
            raise UnrenderedError(f"{self._component}: the episode has neither token ids nor messages of the policy")
        return self._tokenizer.conversation_ids(conversation.messages[: conversation.last + 1])


class RewardModel(Scorer):
    """Scores samples in forward passes that groups share."""

    Options = RewardModelOptions
    low, high = -RANGE, RANGE

    def __init__(self, options: RewardModelOptions, context: Context) -> None:
        """Looks at the folder; raises ConfigError if it holds no reward model."""
        self._options, self._context = options, context
        self._sequences: ModelSequences | None = None
        read_facts(options.path, context.component, ONE_LABEL)

    async def load(self) -> None:
        """Loads the weights. Raises ConfigError for a folder or device that does not work."""
        options, component = self._options, self._context.component
        classifier = await asyncio.to_thread(
            Classifier, options.path, device=options.device, dtype=options.dtype, component=component
        )
        self.version = await asyncio.to_thread(folder_digest, options.path)
        self._sequences = ModelSequences(classifier, options.path, options, self._context)

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """One score a sample, in order; a completion that was cut off is scored as it stands."""
        assert self._sequences is not None, "load() comes first"
        scale = self._options.normalize
        return [
            found if isinstance(found, Verdict) else Verdict(value=(found - scale.mean) / scale.std)
            for found in await self._sequences.score(samples)
        ]

    async def close(self) -> None:
        """Fails all requests that still wait."""
        if self._sequences is not None:
            await self._sequences.passes.close()
