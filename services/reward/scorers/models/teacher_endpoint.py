"""A teacher behind an endpoint: SGLang's `/generate`, or vLLM's `/v1/completions`, asked for the prompt's logprobs.

Both take the logprobs of a prompt at temperature 1, whatever the request says. A sample of another one abstains.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from headrace.services.reward.endpoint import Endpoint, EndpointError, RequestBudget, together
from headrace.services.reward.endpoint.settings import EndpointOptions
from headrace.services.reward.scorer import Context, Sample, ScorerDownError, ScorerUnfitError, Verdict
from headrace.services.reward.scorers.models.teacher import Teacher, TeacherRow, TeacherTokens

_MAX_BYTES = 64 << 20
"""Of an answer: about a hundred bytes a token."""
_COMPARED = 64
"""Prompts whose tokens are compared with those of the endpoint's tokenizer."""


class EndpointTeacherOptions(EndpointOptions):
    """`teacher` behind an endpoint."""

    model: str = ""
    """As the endpoint calls it; SGLang needs none."""
    route: Literal["/generate", "/v1/completions"] = "/generate"
    """SGLang's, or vLLM's (with `prompt_logprobs`)."""
    compare: bool = True
    """Compare its `/tokenize` with the tokens of the first 64 prompts; off for an endpoint that has no such route."""


class EndpointTeacher(Teacher):
    """Scores samples with one request a segment."""

    Options = EndpointTeacherOptions

    def __init__(self, options: EndpointTeacherOptions, context: Context) -> None:
        super().__init__(context)
        self._options = options
        self._endpoint = Endpoint(**options.endpoint, context=context, what="teacher", max_bytes=_MAX_BYTES)
        text = json.dumps([options.model, options.route, self._endpoint.url])
        self.version = hashlib.sha256(text.encode()).hexdigest()[:12]
        self._same: set[str] = set()
        """Prompts of which the endpoint's tokenizer makes the same tokens."""

    async def load(self) -> None:
        """Looks at the endpoint's address; raises ConfigError."""
        await self._endpoint.check()

    async def close(self) -> None:
        """Drops its connections."""
        await self._endpoint.close()

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """Scores as any teacher. Raises ScorerUnfitError if the endpoint has another tokenizer or chat template."""
        for sample in samples if self._options.compare else ():
            ids = sample.prompt_ids
            if ids is None or sample.episode is not None or sample.prompt in self._same:
                continue
            if len(self._same) < _COMPARED:
                await self._compare(sample, ids.tolist())
                self._same.add(sample.prompt)
        return await super().score(samples)

    async def _compare(self, sample: Sample, ours: list[int]) -> None:
        messages: Any = sample.columns.get("prompt_messages")
        asked: list[tuple[str, dict[str, object]]] = [("tokenizer", {"prompt": sample.prompt})]
        # Tools, and an answer that the prompt begins, are written otherwise there.
        if messages and "tools" not in sample.columns and messages[-1]["role"] != "assistant":
            asked.append(("chat template", {"messages": messages, "add_generation_prompt": True}))
        for what, body in asked:
            answer = await self._post("/tokenize", body | {"add_special_tokens": False})
            theirs = [int(one) for one in answer["tokens"]]
            # The policy's tokenizer may put its beginning-of-text token before a text.
            if ours[len(ours) - len(theirs) :] == theirs and len(ours) - len(theirs) in (0, 1):
                continue
            place = next((at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(theirs))
            raise ScorerUnfitError(
                f"the {what} of {self._endpoint.url} is not the policy's: of {sample.prompt[:60]!r} it makes "
                f"{theirs[place : place + 3]} at token {place}, the policy has {ours[place : place + 3]}; serve the "
                "teacher with the policy's tokenizer and chat_template.jinja, or take a teacher that has them"
            )

    async def _post(self, path: str, body: Mapping[str, object], errand: RequestBudget | None = None) -> Any:
        """The answer. Raises EndpointError; ScorerDownError if no request is served."""
        named = {"model": self._options.model} if self._options.model else {}
        try:
            return await self._endpoint.post(path, {**named, **body}, errand=errand)
        except EndpointError as error:
            if error.kind == "down":
                raise ScorerDownError(error.message) from error
            raise

    async def _told(self, rows: Sequence[TeacherRow]) -> Sequence[TeacherTokens | Verdict]:
        errand = RequestBudget(self._context.timeout_s)
        return await together([self._row(row, errand) for row in rows])

    async def _row(self, row: TeacherRow, errand: RequestBudget) -> TeacherTokens | Verdict:
        if row.temperature != 1:
            return Verdict.abstain(f"sampled at temperature {row.temperature:g}, and the endpoint scores at 1")
        body, read = (_sglang, read_sglang) if self._options.route == "/generate" else (_vllm, read_vllm)
        try:
            return read(await self._post(self._options.route, body(row), errand), row)
        except EndpointError as error:
            return Verdict.failure(error.message)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            words = f"{self._endpoint.what} at {self._endpoint.url}: no logprobs of the tokens sent: {error!r}"
            return Verdict.failure(words)


def _sglang(row: TeacherRow) -> dict[str, object]:
    return {
        "input_ids": row.ids.tolist(),
        "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
        "return_logprob": True,
        # The first entry has no logprob.
        "logprob_start_len": row.context - 1,
        "top_logprobs_num": 1,
    }


def read_sglang(answer: Any, row: TeacherRow) -> TeacherTokens:
    """Raises KeyError, TypeError, IndexError or ValueError for an answer of another form, or of other tokens."""
    meta, count = answer["meta_info"], len(row.targets)
    entries, tops = meta["input_token_logprobs"][-count:], meta["input_top_logprobs"][-count:]
    for sent, (_, token, *_) in zip(row.targets.tolist(), entries, strict=True):
        # SGLang calls the last token of the vocabulary 0, with the right logprob.
        if token not in (sent, 0):
            raise ValueError(f"token {token} in place of {sent}")
    return _tokens([float(one[0]) for one in entries], [float(top[0][0]) for top in tops])


def _vllm(row: TeacherRow) -> dict[str, object]:
    return {"prompt": row.ids.tolist(), "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 1}


def read_vllm(answer: Any, row: TeacherRow) -> TeacherTokens:
    """As `read_sglang`."""
    entries = answer["choices"][0]["prompt_logprobs"][-len(row.targets) :]
    told = [
        (float(entry[str(sent)]["logprob"]), max(float(one["logprob"]) for one in entry.values()))
        for sent, entry in zip(row.targets.tolist(), entries, strict=True)
    ]
    return _tokens([one for one, _ in told], [top for _, top in told])


def _tokens(logprobs: Sequence[float], tops: Sequence[float]) -> TeacherTokens:
    if len(tops) != len(logprobs):
        raise ValueError(f"{len(logprobs)} logprobs, {len(tops)} largest ones")
    return TeacherTokens(logprobs=np.array(logprobs), likeliest=np.array(logprobs) >= np.array(tops))
