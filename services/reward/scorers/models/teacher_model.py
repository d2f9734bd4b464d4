"""A teacher that this service runs: a language model of transformers."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headrace.services.reward.scorer import Context, Sample, Verdict
from headrace.services.reward.scorers.models.loaded_model import LoadedModel, ModelKind, folder_digest, read_facts
from headrace.services.reward.scorers.models.passes import Passes, TokenIds
from headrace.services.reward.scorers.models.reward_model import PassOptions
from headrace.services.reward.scorers.models.teacher import Teacher, TeacherRow, TeacherTokens
from headrace.services.reward.scorers.models.teacher_prompt import TeacherPrompt
from headrace.wire.errors import ConfigError, DataError

LANGUAGE_MODEL = ModelKind(suffix="ForCausalLM", way_out="give the folder of a language model")
_ELEMENTS = 1 << 24
"""Logits at a time: 64 MiB in float32."""


class ModelTeacherOptions(PassOptions):
    """`teacher` with a model of its own."""

    path: Path
    """Folder of a language model with the policy's tokenizer."""
    template: str = ""
    """What it reads in place of the prompt: `$prompt`, and `$NAME` for a column that the policy does not see. Empty =
    the policy's own tokens."""


class LanguageModel(LoadedModel[TeacherRow, TeacherTokens]):
    """Scores the tokens of each row after its context."""

    kind = LANGUAGE_MODEL

    def __init__(self, path: Path, *, component: str, **options: Any) -> None:
        """Raises ConfigError, also for a model that changes the logits of its head."""
        super().__init__(path, component=component, **options)
        from headrace.wire.weights.head_check import logits_problem

        if problem := logits_problem(self._model):
            words = "its logits are not its hidden states times its head"
            raise ConfigError(f"{component}: {path}: {words}: {problem}; serve it, and give options.url")

    def _ids(self, row: TeacherRow) -> TokenIds:
        return row.ids

    def _values(self, rows: Sequence[TeacherRow], hidden: Any) -> list[TeacherTokens]:
        import torch

        sizes = [len(row.targets) for row in rows]
        # The state before a token predicts it.
        states = torch.cat([hidden[number, row.context - 1 : len(row) - 1] for number, row in enumerate(rows)])
        targets = torch.from_numpy(np.concatenate([row.targets for row in rows]).astype(np.int64)).to(hidden.device)
        temperature = torch.tensor(np.repeat([row.temperature for row in rows], sizes), dtype=torch.float32)
        head, chunk = self._model.get_output_embeddings(), max(1, _ELEMENTS // self.facts.vocab_size)
        found = []
        for part in (slice(start, start + chunk) for start in range(0, len(targets), chunk)):
            logits = head(states[part]).float().div_(temperature[part, None].to(hidden.device))
            whole = logits.log_softmax(dim=1)
            logprobs = whole.gather(1, targets[part, None])[:, 0]
            entropy = torch.special.entr(whole.exp()).sum(dim=1)
            found.append(torch.stack([logprobs, (logprobs >= whole.amax(dim=1)).float(), entropy]).double().cpu())
        ends = np.cumsum(sizes)[:-1]
        numbers = (np.split(each, ends) for each in torch.cat(found, dim=1).numpy())
        return [
            TeacherTokens(logprobs=logprobs, likeliest=likeliest > 0, entropy=entropy)
            for logprobs, likeliest, entropy in zip(*numbers, strict=True)
        ]


class ModelTeacher(Teacher):
    """Scores samples in forward passes that groups share."""

    Options = ModelTeacherOptions

    def __init__(self, options: ModelTeacherOptions, context: Context) -> None:
        """Looks at the folder; raises ConfigError if it holds no language model."""
        super().__init__(context)
        self._options = options
        self._model: LanguageModel | None = None
        self._passes: Passes[TeacherRow, TeacherTokens] | None = None
        read_facts(options.path, context.component, LANGUAGE_MODEL)
        template = options.template
        self._prompt = TeacherPrompt(template, options.path, context.component) if template else None

    async def load(self) -> None:
        """Loads the weights. Raises ConfigError for a folder or device that does not work."""
        options, component = self._options, self._context.component
        self._model = await asyncio.to_thread(
            LanguageModel, options.path, device=options.device, dtype=options.dtype, component=component
        )
        self.version = await asyncio.to_thread(folder_digest, options.path)
        self._passes = Passes(
            self._model,
            max_tokens=options.max_tokens,
            deadline_s=self._context.timeout_s,
            what=f"the scorer {component}",
            joined=options.join,
        )

    def problem(self, columns: Mapping[str, object]) -> str | None:
        """What the teacher's own prompt lacks in a row."""
        try:
            if self._prompt is not None:
                self._prompt.ids("", columns)
        except DataError as error:
            return str(error)
        return None

    def _rows(self, sample: Sample) -> list[TeacherRow]:
        rows = super()._rows(sample)
        if self._prompt is None:
            return rows
        if sample.episode is not None:
            raise DataError("options.template is for prompts: the messages of an episode are its environment's")
        ids = self._prompt.ids(sample.prompt, sample.columns)
        return [replace(row, ids=np.concatenate([ids, row.targets]), context=len(ids)) for row in rows]

    async def _told(self, rows: Sequence[TeacherRow]) -> list[TeacherTokens | Verdict]:
        assert self._model is not None and self._passes is not None, "load() comes first"
        problems = [self._model.problem(row.ids) for row in rows]
        found = iter(await self._passes.run([row for row, wrong in zip(rows, problems, strict=True) if not wrong]))
        return [Verdict.failure(wrong) if wrong else next(found) for wrong in problems]

    async def close(self) -> None:
        """Fails all requests that still wait."""
        if self._passes is not None:
            await self._passes.close()
