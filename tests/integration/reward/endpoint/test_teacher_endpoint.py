"""A teacher behind a real socket, in the forms of SGLang and vLLM: each token's logprob, or nothing in its place."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headrace.services.reward.rubric.circuit import ScorerBrokenError
from headrace.services.reward.rubric.rubrics import Rubrics, context_of
from headrace.services.reward.scorer import Context, Scorer, ScorerDownError
from headrace.services.reward.scorers.registry import build_scorer
from headrace.services.reward.settings import RewardTable
from tests.integration.reward.endpoint.scripted import Answer, Request, Scripted, answer, asking, ok, scripted
from tests.teachers import Reference, samples

VOCAB = 24


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp("teacher"))


def scorer(server: Scripted, **options: Any) -> Scorer:
    context = Context(component="mine", timeout_s=20.0, allow_hosts=(f"127.0.0.1:{server.port}",))
    return build_scorer("teacher", {"url": server.url, "attempt_s": 5.0} | options, context)


def serves(reference: Reference, **tokens: list[int]) -> Callable[[Request], Answer]:
    """Real logprobs of the model; `tokens`: of a prompt, for the tokenizer."""

    def reply(request: Request) -> Answer:
        body = request.body
        if request.path == "/tokenize":
            return ok({"tokens": tokens["messages" if "messages" in body else "prompt"]})
        if request.path == "/v1/completions":
            return ok({"choices": [{"prompt_logprobs": vllm(reference, body["prompt"])}]})
        assert request.path == "/generate" and body["return_logprob"] and body["sampling_params"]["max_new_tokens"] == 0
        return ok({"meta_info": sglang(reference, body["input_ids"], body["logprob_start_len"])})

    return reply


def sglang(reference: Reference, ids: list[int], start: int) -> dict[str, Any]:
    """As 0.5.23: the first entry is null, and the last token of the vocabulary has the id 0."""
    whole = reference.logprobs(ids)
    shown = [0 if one == VOCAB - 1 else one for one in ids]
    entries = [[None, shown[start], None]]
    entries += [[float(whole[at - 1, ids[at]]), shown[at], None] for at in range(start + 1, len(ids))]
    tops = [[[float(whole[at - 1].max()), int(whole[at - 1].argmax()), None]] for at in range(start + 1, len(ids))]
    return {"input_token_logprobs": entries, "input_top_logprobs": [None, *tops]}


def vllm(reference: Reference, ids: list[int]) -> list[Any]:
    found: list[Any] = [None]
    for row, sent in zip(reference.logprobs(ids), ids[1:], strict=True):
        found.append({str(one): {"logprob": float(row[one]), "rank": 1} for one in {sent, int(row.argmax())}})
    return found


@pytest.mark.parametrize("route", ["/generate", "/v1/completions"])
async def test_each_token_scores_the_endpoints_logprob_less_the_policys(reference: Reference, route: str) -> None:
    given = samples()
    async with asking(scorer, otherwise=serves(reference, prompt=[5, 6, 7]), route=route, model="t") as (server, it):
        found = [*await it.score(given), *await it.score(given)]
        for number, verdict in enumerate(found):
            np.testing.assert_allclose(
                verdict.token_scores, reference.gaps(number % 2, given[number % 2]), rtol=0, atol=1e-5
            )
        whole = reference.logprobs([5, 6, 7, 4, 23, 7, 1])[2:]
        assert found[0].parts["agreement"] == np.mean(whole.argmax(axis=1) == [4, 23, 7, 1])
        # A prompt is compared once, and each segment is a request.
        paths = [request.path for request in server.requests]
        assert paths == ["/tokenize", *[route] * 6] and all(one.body["model"] == "t" for one in server.requests)


@pytest.mark.parametrize(
    ("tokens", "messages", "said"),
    [
        (
            {"prompt": [5, 9, 7]},
            None,
            r"tokenizer of http\S+ is not the policy's: of '567' it makes \[9, 7\] at token 1",
        ),
        ({"prompt": [6, 7], "messages": [5, 6, 7, 2]}, [{"role": "user", "content": "6"}], "the chat template of"),
    ],
)
async def test_another_tokenizer_or_template_ends_the_run_before_anything_is_scored(
    reference: Reference, tokens: dict[str, list[int]], messages: Any, said: str
) -> None:
    async with scripted(otherwise=serves(reference, **tokens)) as server:
        table = RewardTable.model_validate(
            {
                "scorers": ({"name": "teacher", "options": {"url": server.url}},),
                "allow_hosts": (f"127.0.0.1:{server.port}",),
            }
        )
        rubrics = Rubrics(table, context_of(table))
        columns = {"prompt_messages": messages} if messages else {}
        with pytest.raises(ScorerBrokenError, match=said):
            await rubrics.score([replace(samples()[0], columns=columns)], patient=True)
        assert {one.path for one in server.requests} == {"/tokenize"}
        await rubrics.close()


BAD: dict[str, Any] = {
    "other tokens": {"input_token_logprobs": [[-1.0, 5, None]] * 5, "input_top_logprobs": [[[-1.0, 5, None]]] * 5},
    "too few": {"input_token_logprobs": [[-1.0, 0, None]] * 3, "input_top_logprobs": [[[-1.0, 0, None]]] * 3},
    "no number": {"input_token_logprobs": [[None, 0, None]] * 5, "input_top_logprobs": [[[-1.0, 0, None]]] * 5},
    "nothing": {},
}


@pytest.mark.parametrize("what", BAD)
async def test_an_answer_without_the_logprob_of_each_token_sent_abstains(what: str) -> None:
    reply = ok({"meta_info": BAD[what]})
    async with asking(scorer, otherwise=lambda _: reply, compare=False) as (_, it):
        (found,) = await it.score(samples()[:1])
        assert found.value is None and found.failed and "no logprobs of the tokens sent" in found.reason


async def test_a_busy_endpoint_and_another_temperature_abstain_and_a_dead_one_is_down() -> None:
    async with asking(scorer, otherwise=lambda _: answer(503), compare=False, retries=0) as (server, it):
        (found,) = await it.score(samples()[:1])
        assert found.value is None and found.failed
        (found,) = await it.score(samples(0.7)[:1])
        assert found.value is None and not found.failed and "temperature 0.7" in found.reason
        assert len(server.requests) == 1
    it = scorer(server)
    with pytest.raises(ScorerDownError):
        await it.score(samples())
    await it.close()
