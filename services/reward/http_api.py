"""`POST /score`: the run's scorers over HTTP, for clients that are not services of the run."""

from typing import Literal

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from headrace.services.reward.conversation import episode_of_messages
from headrace.services.reward.request_limiter import RequestLimiter
from headrace.services.reward.rubric.circuit import CircuitOpenError, ScorerOutageError, State
from headrace.services.reward.rubric.rubric import Result
from headrace.services.reward.rubric.rubrics import Rubrics
from headrace.services.reward.rubric.scorer_slot import ScorerSlot
from headrace.services.reward.scorer import Sample
from headrace.wire.config.json_text import is_text
from headrace.wire.errors import WaitTimeoutError
from headrace.wire.http import BodyLimits, act_refusals, read_refusals

MAX_SAMPLES = 4096
MAX_BYTES = 64 * 1024 * 1024
"""Longest batch, and all batches in progress together: once it is parsed, a batch costs several times its bytes."""
LIMITS = BodyLimits(larger={"/score": MAX_BYTES}, total_bytes=MAX_BYTES)
"""Bounds of all bodies that the service takes."""


class TextPart(BaseModel):
    """A text part of a message's content."""

    model_config = ConfigDict(strict=True)

    type: Literal["text"]
    """Nothing but text can be scored here."""
    text: str


class TextMessage(BaseModel):
    """One message of a conversation. Further keys are kept."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: str = ""
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        """The message's text."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


Text = str | list[TextMessage]


class ScoreSample(BaseModel):
    """One completion. Further keys are the data row's columns, as scorers see them: `answer`, `data_source`."""

    model_config = ConfigDict(extra="allow", strict=True)

    prompt: Text = ""
    """Text or messages."""
    completion: Text
    """Text or messages; several ones, or calls of tools, are an episode: the assistant's are the policy's turns."""
    group: str = ""
    """Samples of one group answer one prompt, and may be compared."""
    truncated: bool = False
    """The token limit cut it off."""


class ScoreRequest(BaseModel):
    """A batch of samples."""

    samples: list[ScoreSample] = Field(min_length=1, max_length=MAX_SAMPLES)


class SampleScore(BaseModel):
    """What was made of one sample."""

    score: float | None
    """null = it abstained; `reason` gives the cause."""
    components: dict[str, float]
    reason: str
    seconds: dict[str, float]
    version: str
    """Version of the sample's rubric."""
    versions: dict[str, str]
    """Version of each of its scorers."""


class ScoreResponse(BaseModel):
    """One score a sample, in order."""

    scores: list[SampleScore]


class ScorerState(BaseModel):
    """One scorer, as it is now."""

    name: str
    version: str
    low: float
    high: float
    circuit: State
    reason: str
    """Why its circuit is not closed."""
    alarm: str
    """What it warns of: a judge whose canary earns reward."""


class HttpScorer:
    """Scores requests, each in its turn."""

    def __init__(self, rubrics: Rubrics, limiter: RequestLimiter) -> None:
        self._rubrics, self._limiter = rubrics, limiter

    def states(self) -> list[ScorerState]:
        """State of every scorer, each once."""
        return [_state(slot) for slot in self._rubrics.slots]

    async def score(self, request: ScoreRequest) -> ScoreResponse:
        """Raises HTTPException 503 while a scorer is down, or the limit of requests is reached."""
        samples = [sample_of(sample) for sample in request.samples]
        try:
            async with self._limiter.one():
                results = await self._rubrics.score(samples, patient=False)
        except CircuitOpenError as error:
            raise _unavailable(str(error), error.retry_s) from error
        except (ScorerOutageError, WaitTimeoutError) as error:
            raise _unavailable(str(error), self._limiter.timeout_s) from error
        return ScoreResponse(
            scores=[self._said(sample, result) for sample, result in zip(samples, results, strict=True)]
        )

    def _said(self, sample: Sample, result: Result) -> SampleScore:
        versions = self._rubrics.versions(sample.columns) | result.versions
        return SampleScore(
            score=result.value,
            components=result.components,
            reason=result.reason,
            seconds=result.seconds,
            version=self._rubrics.version(sample.columns, versions),
            versions=versions,
        )


def _state(slot: ScorerSlot) -> ScorerState:
    return ScorerState(
        name=slot.name,
        version=slot.scorer.version,
        low=slot.low,
        high=slot.high,
        circuit=slot.circuit.state,
        reason=slot.circuit.trouble,
        alarm=slot.scorer.alarm or "",
    )


def add_routes(app: FastAPI, scorer: HttpScorer) -> None:
    """Adds the routes to an app."""

    @app.post("/score", responses=act_refusals(400, 422))
    async def score(batch: ScoreRequest, request: Request) -> ScoreResponse:
        """Scores of a batch, in order. What cannot be scored has a score of null and a reason, never a zero."""
        if not is_text(await request.body()):
            raise HTTPException(422, "not all of it is text: half a surrogate pair is no character")
        return await scorer.score(batch)

    @app.get("/scorers", responses=read_refusals())
    def scorers() -> list[ScorerState]:
        """Every scorer of the run: its version, its range, whether it is up, and what it warns of."""
        return scorer.states()


def sample_of(sample: ScoreSample, name: str = "") -> Sample:
    """What scorers see of it. Messages of the prompt are kept in the column `prompt_messages`, as in a run.

    A completion of several messages is an episode, as in a run: its text is the assistant's last message.
    """
    columns = dict(sample.model_extra or {})
    if not isinstance(sample.prompt, str):
        columns.setdefault("prompt_messages", [one.model_dump(exclude_unset=True) for one in sample.prompt])
    played = _played(sample.completion)
    asked = [TextMessage(role="user", content=sample.prompt)] if isinstance(sample.prompt, str) else sample.prompt
    return Sample(
        prompt=_text_of(sample.prompt),
        completion=_text_of(played[-1:] or sample.completion),
        columns=columns,
        group=sample.group,
        name=name,
        truncated=sample.truncated,
        episode=episode_of_messages(_plain(asked), _plain(sample.completion)) if played else None,
    )


def _played(completion: Text) -> list[TextMessage]:
    """The assistant's messages of a conversation; none for a completion, be it text or one message."""
    if isinstance(completion, str):
        return []
    said = [one for one in completion if one.role == "assistant"]
    return said if len(completion) > 1 or any((one.model_extra or {}).get("tool_calls") for one in said) else []


def _plain(messages: Text) -> list[dict[str, object]]:
    return [] if isinstance(messages, str) else [one.model_dump() | {"content": one.text} for one in messages]


def _text_of(content: Text) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(message.text for message in content)


def _unavailable(words: str, retry_s: float) -> HTTPException:
    return HTTPException(503, words, headers={"Retry-After": str(max(1, round(retry_s)))})
