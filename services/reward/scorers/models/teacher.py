"""`teacher`: how much likelier a teacher finds each sampled token than the policy did (on-policy distillation).

`token_scores[t] = log p_teacher(t) - log p_policy(t)`, in nats at the temperature of the sampling: an unbiased estimate
of the negative reverse KL at each token. The value is 0. The teacher reads the policy's own token ids, so both must
have the same tokenizer.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.services.reward.scorer import Context, Sample, Scorer, Verdict
from headrace.services.reward.scorers.models.passes import TokenIds
from headrace.wire.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherRow:
    """What the policy read and sampled in one segment."""

    ids: TokenIds
    """int32 [context + part]"""
    context: int
    """Tokens of the context, at least one; those after it are scored."""
    temperature: float

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def targets(self) -> TokenIds:
        """int32 [part]"""
        return self.ids[self.context :]


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherTokens:
    """What a teacher says of the part of a row, or of several. Axis: part = its tokens."""

    logprobs: NDArray[np.float64]
    """[part], nats"""
    likeliest: NDArray[np.bool_]
    """[part]: whether the teacher finds no token likelier."""
    entropy: NDArray[np.float64] | None = None
    """[part], nats, of the teacher's distribution; None where it is not known."""


class Teacher(Scorer):
    """Scores samples by the logprobs of their tokens, wherever those come from."""

    low = high = 0.0

    def __init__(self, context: Context) -> None:
        self._context = context

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """One verdict a sample, in order; what came as text abstains. Raises ScorerDownError."""
        rows = [self._rows(sample) for sample in samples]
        told = iter(await self._told([row for some in rows for row in some]))
        return [_verdict(sample, [next(told) for _ in some]) for sample, some in zip(samples, rows, strict=True)]

    def _rows(self, sample: Sample) -> list[TeacherRow]:
        if sample.logprobs is None:
            return []
        return [TeacherRow(ids=ids, context=start, temperature=sample.temperature) for ids, start in sample.segments]

    @abstractmethod
    async def _told(self, rows: Sequence[TeacherRow]) -> Sequence[TeacherTokens | Verdict]:
        """The tokens of each row, or the failure of those that cannot be had."""


def build(options: Mapping[str, object], context: Context) -> Scorer:
    """The teacher that runs in this service (`path`), or the one that an endpoint serves (`url`)."""
    from headrace.services.reward.scorers.models.teacher_endpoint import EndpointTeacher
    from headrace.services.reward.scorers.models.teacher_model import ModelTeacher

    if ("path" in options) == ("url" in options):
        raise ConfigError(
            f"{context.component}: give options.path (the folder of a model that this service runs) or options.url (an "
            "endpoint that serves one)"
        )
    kind = ModelTeacher if "path" in options else EndpointTeacher
    return kind(context.options(kind.Options, options), context)  # type: ignore[arg-type]


def _verdict(sample: Sample, told: Sequence[TeacherTokens | Verdict]) -> Verdict:
    tokens = [one for one in told if isinstance(one, TeacherTokens)]
    if failed := [one for one in told if isinstance(one, Verdict)]:
        return failed[0]
    if not tokens or sample.logprobs is None:
        return Verdict.abstain("only text came: a teacher needs the tokens that the policy sampled, and their logprobs")
    own = np.ones(len(sample.logprobs), np.bool_) if sample.loss_mask is None else sample.loss_mask
    gap = np.concatenate([one.logprobs for one in tokens]) - sample.logprobs
    if not np.isfinite(gap[own]).all():
        return Verdict.failure("the teacher's logprob of a token is not finite")
    parts = {
        "kl": -float(gap[own].mean()),
        "agreement": float(np.concatenate([one.likeliest for one in tokens])[own].mean()),
    }
    entropies = [one.entropy for one in tokens if one.entropy is not None]
    if len(entropies) == len(tokens):
        parts["entropy"] = float(np.concatenate(entropies)[own].mean())
    return Verdict(value=0.0, parts=parts, token_scores=np.where(own, gap, np.nan).astype(np.float32))
