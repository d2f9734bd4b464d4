"""A reward model behind an endpoint: SGLang's `/classify` (started with `--is-embedding`), or routes of its form.

One number a sample: the scalar head's output at the last token of prompt and completion, as the scorer
`reward_model` computes it itself.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import Field

from headrace.services.reward.endpoint import Endpoint, EndpointError, RequestBudget, together
from headrace.services.reward.endpoint.settings import EndpointOptions
from headrace.services.reward.scorer import Context, Sample, Scorer, ScorerDownError, Verdict

_CHARACTERS_A_TOKEN = 3
"""Characters per token of text whose tokens are not known; fewer than in most languages, so batches are small."""
_BATCH = 256
"""Samples of one request."""


class RewardEndpointOptions(EndpointOptions):
    """`reward_endpoint`."""

    model: str = ""
    """As the endpoint calls it; SGLang needs none."""
    route: Literal["/classify", "/encode", "/v1/embeddings"] = "/classify"
    """The first two answer with a list of `embedding`s, the third with OpenAI's `data`."""
    send: Literal["ids", "text"] = "ids"
    """`ids`: the tokens that the policy read and sampled (of an episode all of its last segment); the reward model must
    have the policy's tokenizer. `text`: prompt and completion, of an episode its messages below their roles, tokenized
    there."""
    token_budget: int = Field(16_384, ge=1)
    """Tokens of one request; a longer sample goes alone."""
    concurrency: int = Field(4, ge=1)
    """Requests in flight."""


class RewardEndpoint(Scorer):
    """Scores samples in batches under a token budget, of similar lengths."""

    Options = RewardEndpointOptions

    def __init__(self, options: RewardEndpointOptions, context: Context) -> None:
        self._options = options
        self._timeout_s = context.timeout_s
        self._endpoint = Endpoint(**options.endpoint, context=context, what="reward model")
        text = json.dumps([options.model, options.route, options.send, self._endpoint.url])
        self.version = hashlib.sha256(text.encode()).hexdigest()[:12]

    async def load(self) -> None:
        """Looks at the endpoint's address; raises ConfigError."""
        await self._endpoint.check()

    async def close(self) -> None:
        """Drops its connections."""
        await self._endpoint.close()

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """Returns one verdict per sample; raises ScorerDownError if the endpoint serves no request."""
        verdicts: dict[int, Verdict] = {}
        known = []
        for index, sample in enumerate(samples):
            if self._options.send == "ids" and sample.sequence_ids is None:
                verdicts[index] = Verdict.abstain("only text came, and send = 'ids'; set send = 'text'")
            elif self._options.send == "text" and sample.text is None:
                verdicts[index] = Verdict.abstain("the episode has no messages, and send = 'text'; set send = 'ids'")
            else:
                known.append(index)
        sizes = {index: self._size(samples[index]) for index in known}
        parts = list(batches(sizes, self._options.token_budget))
        errand = RequestBudget(self._timeout_s)
        found = await together([self._batch([samples[index] for index in part], errand) for part in parts])
        for part, scored in zip(parts, found, strict=True):
            verdicts |= zip(part, scored, strict=True)
        return [verdicts[index] for index in range(len(samples))]

    def _size(self, sample: Sample) -> int:
        ids = sample.sequence_ids
        return len(sample.text or "") // _CHARACTERS_A_TOKEN + 1 if ids is None else len(ids)

    async def _batch(self, samples: list[Sample], errand: RequestBudget) -> list[Verdict]:
        try:
            answer = await self._endpoint.post(self._options.route, self._body(samples), errand=errand)
            return [Verdict(value=number) for number in read_scores(answer, len(samples))]
        except EndpointError as error:
            if (error.kind == "refused" or error.is_ban) and len(samples) > 1:
                # One of them may be too long, or be refused for its content: the others are not to suffer from it.
                alone = await together([self._batch([one], errand) for one in samples])
                return [verdict for each in alone for verdict in each]
            if error.kind == "down":
                raise ScorerDownError(error.message) from error
            return [Verdict.failure(error.message)] * len(samples)
        except ValueError as error:
            return [Verdict.failure(f"{self._endpoint.what} at {self._endpoint.url}: {error}")] * len(samples)

    def _body(self, samples: Sequence[Sample]) -> dict[str, object]:
        body: dict[str, object] = {"model": self._options.model} if self._options.model else {}
        inputs = [self._input(sample) for sample in samples]
        if self._options.route == "/v1/embeddings":
            return body | {"input": inputs}
        return body | {"input_ids" if self._options.send == "ids" else "text": inputs}

    def _input(self, sample: Sample) -> list[int] | str:
        ids = sample.sequence_ids if self._options.send == "ids" else None
        return sample.text or "" if ids is None else [int(one) for one in ids]


def batches(sizes: Mapping[int, int], budget: int) -> Iterator[list[int]]:
    """The keys by falling size, as many together as fit the budget (padding included) and a request holds."""
    part: list[int] = []
    longest = 0
    for index in sorted(sizes, key=lambda key: (-sizes[key], key)):
        if part and ((len(part) + 1) * longest > budget or len(part) == _BATCH):
            yield part
            part = []
        longest = longest if part else sizes[index]
        part.append(index)
    if part:
        yield part


def read_scores(answer: object, count: int) -> list[float]:
    """One number a sample, in order; raises ValueError naming what came instead."""
    if isinstance(answer, Mapping) and isinstance(answer.get("data"), list):
        answer = sorted(answer["data"], key=lambda entry: _index(entry))
    if not isinstance(answer, list) or len(answer) != count:
        got = f"{len(answer)} entries" if isinstance(answer, list) else type(answer).__name__
        raise ValueError(f"{count} scores were requested, {got} arrived")
    return [_one_number(entry) for entry in answer]


def _index(entry: object) -> int:
    index = entry.get("index") if isinstance(entry, Mapping) else None
    if not isinstance(index, int):
        raise ValueError("an entry has no index")
    return index


def _one_number(entry: object) -> float:
    numbers = entry.get("embedding") if isinstance(entry, Mapping) else None
    if not isinstance(numbers, list) or not numbers:
        raise ValueError("an entry has no embedding")
    if len(numbers) != 1:
        raise ValueError(f"{len(numbers)} numbers a sample in place of one: it serves no reward model with one label")
    if type(numbers[0]) not in (int, float):
        raise ValueError(f"{str(numbers[0])[:20]!r} is no number")
    return float(numbers[0])
