"""What a scorer is: samples in, one verdict a sample out.

A sample is a completion and what a scorer may see beside it, from any source: the run's stream, gRPC, HTTP or a
file. A verdict is a number, or an abstention with its reason; never a zero in place of a missing score.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from headrace.services.reward.conversation import Conversation, read_conversation
from headrace.wire.config.problems import first_problem
from headrace.wire.config.settings import Table
from headrace.wire.contracts import Episode
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.process.users_code import Bug

T = TypeVar("T", bound=Table)

Reads = Literal["answer", "all", "sampled"]
"""What a scorer sees of a completion: the answer after the thoughts, all of it with the tag by which its prompt opened
them, or what was sampled."""
Place = Literal["", "tag", "box", "mark", "label", "line"]
"""Where an answer stands; empty = in any of these."""
WIDEST = 1000.0
"""Scores of a scorer that declares no range must lie within this distance of 0."""


class ScorerDownError(TransientError):
    """The scorer cannot score any sample now: its circuit opens at once."""


class ScorerUnfitError(ConfigError):
    """The scorer does not belong to the policy, which showed only with a sample: the run is to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One completion. Axes: prompt, completion = tokens."""

    prompt: str
    completion: str
    columns: Mapping[str, object] = field(default_factory=dict)
    """The data row's other columns: JSON values."""
    group: str = ""
    """Samples of one group answer one prompt; only they may be compared."""
    name: str = ""
    """Its rollout id, or its line; for messages."""
    prompt_ids: NDArray[np.int32] | None = None
    """int32 [prompt]; None where only text came, or where an episode has several segments."""
    completion_ids: NDArray[np.int32] | None = None
    """int32 [completion]"""
    loss_mask: NDArray[np.bool_] | None = None
    """bool [completion]: True = sampled by the policy. None = all are."""
    logprobs: NDArray[np.float32] | None = None
    """float32 [completion], nats: the policy's when it sampled, 0 where masked; None where only text came."""
    temperature: float = 1.0
    """The temperature of these logprobs."""
    truncated: bool = False
    """A limit of tokens or turns cut it off."""
    episode: Episode | None = None
    """Messages and reward of an environment; then `completion` is the policy's last message."""
    opened_by: str = ""
    """The tag with which the prompt opens a thought; empty = it opens none."""
    answer_start: int | None = 0
    """Characters of the completion that are thoughts; None = a thought never closed: there is no answer."""
    task: str = ""
    """The task whose scorers judge it; empty = the one that its row's column names."""

    def seen(self, reads: Reads) -> "Sample":
        """The sample with that part of its completion which a scorer reads."""
        if reads == "answer" and self.answer_start != 0:
            answer = "" if self.answer_start is None else self.completion[self.answer_start :]
            return replace(self, completion=answer, opened_by="", answer_start=0)
        if reads == "all" and self.opened_by:
            return replace(self, completion=self.opened_by + self.completion, opened_by="")
        return self

    @property
    def conversation(self) -> Conversation | None:
        """The messages of an episode; None for a completion, and for an episode whose record has none."""
        return None if self.episode is None else read_conversation(self.episode)

    @property
    def sequence_ids(self) -> NDArray[np.int32] | None:
        """int32 [context + completion]: all that the policy had read and sampled at its last token.

        Of an episode of several segments the one in which the conversation ends. None where only text came.
        """
        ids = self.completion_ids
        if self.episode is None or not self.episode.segments:
            context, start = self.prompt_ids, 0
        else:
            end = self._end(self.episode)
            segment = next(one for one in reversed(self.episode.segments) if one.start < end)
            context, start, ids = segment.context_ids, segment.start, None if ids is None else ids[:end]
        return None if context is None or ids is None else np.concatenate([context, ids[start:]]).astype(np.int32)

    @property
    def segments(self) -> list[tuple[NDArray[np.int32], int]]:
        """All that the policy read and sampled: int32 [context + part of the completion] and the context's length.

        The parts make up the completion, in order. Empty where only text came.
        """
        ids = self.completion_ids
        if self.episode is not None:
            found = [(one.start, one.context_ids) for one in self.episode.segments]
        else:
            found = [] if self.prompt_ids is None else [(0, self.prompt_ids)]
        if ids is None or not found:
            return []
        ends = [*(start for start, _ in found[1:]), len(ids)]
        pairs = zip(found, ends, strict=True)
        return [(np.concatenate([context, ids[start:end]]), len(context)) for (start, context), end in pairs]

    def _end(self, episode: Episode) -> int:
        """The place after the last token of the conversation: an agent's last segment may be one beside it."""
        conversation = self.conversation if len(episode.segments) > 1 else None
        turn = None if conversation is None else conversation.turns[conversation.last]
        return episode.turn_ends[turn if turn is not None and 0 <= turn < len(episode.turn_ends) else -1]

    @property
    def text(self) -> str | None:
        """Prompt and completion; of an episode all messages, each below its role. None if its record has none."""
        if self.episode is None:
            return self.prompt + self.completion
        return None if (conversation := self.conversation) is None else conversation.text

    @property
    def tokens(self) -> int | None:
        """Tokens that the policy sampled; None where only text came."""
        if self.loss_mask is not None:
            return int(self.loss_mask.sum())
        return None if self.completion_ids is None else len(self.completion_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A scorer's result for one sample."""

    value: float | None
    """None = it abstains."""
    reason: str = ""
    """Why it abstains, or what the value rests on; for people."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further numbers of interest: shown as `SCORER.PART` beside the score, never weighted."""
    token_scores: NDArray[np.float32] | None = None
    """float32 [completion]: rewards of single tokens, beside `value`; NaN = this token has none."""
    version: str = ""
    """Version that scored it, where that may change meanwhile; empty = the scorer's own."""
    failed: bool = False
    """It abstains because the scorer failed it (after bounded retries), not by judgement: so outages are noticed."""

    bug: Bug | None = None
    """The error of the user's own code that it failed by; None for any other failure."""
    unasked: bool = False
    """It rests on the sample alone: whatever the scorer asks for others (endpoint, sandbox) had no part in it, so it
    is not evidence of the scorer's health."""

    @classmethod
    def abstain(cls, reason: str) -> "Verdict":
        """By judgement: this sample is nothing that the scorer can score."""
        return cls(value=None, reason=reason)

    @classmethod
    def failure(cls, reason: str, bug: Bug | None = None) -> "Verdict":
        """The scorer could not do its work on this sample."""
        return cls(value=None, reason=reason, failed=True, bug=bug)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a scorer is built with beside its own options."""

    component: str
    """Its name in the rubric."""
    timeout_s: float = 60.0
    """Time for its work on one group (or one sample), counted from the start of that work."""
    concurrency: int = 8
    """Groups that may be scored at a time."""
    processes: int = 1
    """Worker processes of scorers that run in some."""
    run_dir: Path | None = None
    """None outside of a run."""
    user_path: Path | None = None
    """Folder of the user's own modules."""
    allow_hosts: tuple[str, ...] = ()
    """host or host:port that may be called although it is private or loopback."""
    place: Place = ""
    """Where scorers of answers look for one."""

    def options(self, kind: type[T], given: Mapping[str, object]) -> T:
        """The scorer's own options, checked; raises ConfigError naming scorer, key and what is wrong."""
        try:
            return kind.model_validate(dict(given))
        except ValidationError as error:
            known = ", ".join(kind.model_fields) or "none"
            raise ConfigError(f"{self.component}: options.{first_problem(error)}; the options are {known}") from None


class Scorer(ABC):
    """Scores samples; built once, called many times, by several tasks at once."""

    version: str = "1"
    """Changes with everything that affects its scores beside its options: code, weights, prompt."""
    low: float = -WIDEST
    high: float = WIDEST
    """A value out of this range is refused."""
    reads: Reads = "sampled"
    """What it sees of a completion, unless its table says otherwise."""
    checked_by_loading: bool = False
    """A dry run loads it, and asks `problem` then: for scorers whose faults show only so, such as the user's code."""

    @property
    def alarm(self) -> str | None:
        """What people should know of it now: a judge that rewards what it should not."""
        return None

    async def load(self) -> None:  # noqa: B027
        """Makes it ready to score: weights, processes, a look at the endpoint. Raises ConfigError."""

    @abstractmethod
    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """Returns one verdict per sample, in order, and bounds its own work by deadlines.

        A failure of single samples is a `Verdict.failure`; an exception is a failure of them all, and ScorerDownError
        means that any other sample would fail too.
        """

    async def close(self) -> None:  # noqa: B027
        """Ends its processes and connections."""

    def problem(self, columns: Mapping[str, object]) -> str | None:
        """Why a data row with these columns could never be scored, for any completion; None = it can. No I/O."""
        return None


class Build(Protocol):
    """How the registry makes a scorer."""

    def __call__(self, options: Mapping[str, object], context: Context) -> Scorer:
        """Raises ConfigError naming scorer, key and way out."""
        ...
