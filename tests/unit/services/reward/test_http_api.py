"""`POST /score`: the same scorers over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest

from headrace.services.reward.http_api import LIMITS, HttpScorer, add_routes
from headrace.services.reward.request_limiter import RequestLimiter
from headrace.services.reward.rubric.rubrics import Rubrics
from headrace.services.reward.scorer import Sample, ScorerDownError
from headrace.wire.http import HttpPolicy, admin_app
from tests.reward_scorers import install, rubrics, scripted

SEEN: list[Sample] = []


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(samples: Sequence[Sample]) -> list[float]:
        SEEN.extend(samples)
        return [float(sample.completion == sample.columns.get("answer")) for sample in samples]

    def down(samples: Sequence[Sample]) -> list[float]:
        raise ScorerDownError("connection refused")

    def odd(samples: Sequence[Sample]) -> list[float]:
        return [float("nan") if sample.completion == "bad" else 1.0 for sample in samples]

    SEEN.clear()
    install(monkeypatch, seen=seen, down=down, odd=odd)


async def client(made: Rubrics, *, concurrency: int = 4, timeout_s: float = 5) -> AsyncIterator[httpx.AsyncClient]:
    app = admin_app("reward", made.trouble, policy=HttpPolicy(limits=LIMITS))
    add_routes(app, HttpScorer(made, RequestLimiter(concurrency, timeout_s)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as one:
        yield one


async def test_a_batch_is_scored_in_order_and_other_keys_are_columns() -> None:
    async for one in client(rubrics(scripted("seen"))):
        samples = [
            {"prompt": "1+2=", "completion": "3", "answer": "3", "unit": {"name": "apples"}},
            {"prompt": "1+2=", "completion": "4", "answer": "3", "group": "g", "truncated": True},
        ]
        found = await one.post("/score", json={"samples": samples})
        assert found.status_code == 200
        scores = found.json()["scores"]
        assert [score["score"] for score in scores] == [1.0, 0.0]
        assert scores[0]["components"] == {"seen": 1.0} and scores[0]["versions"] == {"seen": "seen@1"}
    by_text = {sample.completion: sample for sample in SEEN}
    assert by_text["3"].columns["unit"] == {"name": "apples"}
    assert by_text["4"].group == "g" and by_text["4"].truncated


async def test_messages_become_text_for_scorers_and_stay_a_column() -> None:
    async for one in client(rubrics(scripted("seen"))):
        prompt = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "1+2="}]
        completion = [{"role": "assistant", "content": "3"}]
        sample = {"prompt": prompt, "completion": completion, "answer": "3"}
        found = await one.post("/score", json={"samples": [sample]})
        assert found.json()["scores"][0]["score"] == 1.0
    assert SEEN[0].prompt == "Be short.\n1+2=" and SEEN[0].columns["prompt_messages"] == prompt


async def test_a_completion_of_several_messages_is_an_episode_whose_text_is_the_assistants_last() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    said = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "3"},
        {"role": "assistant", "content": [{"type": "text", "text": "It is 3"}]},
        {"role": "user", "content": "Thanks."},
    ]
    shots = [{"role": "user", "content": "0+1="}, {"role": "assistant", "content": "1", "turn": 0}]
    prompt = [*shots, {"role": "user", "content": "1+2="}]
    async for one in client(rubrics(scripted("seen"))):
        sample = {"prompt": prompt, "completion": said, "answer": "It is 3"}
        found = await one.post("/score", json={"samples": [sample, sample | {"completion": said[:1]}]})
        assert found.json()["scores"][0]["score"] == 1.0, "not the tool's result, and not all texts together"
    whole, broken_off = (one.conversation for one in SEEN)
    assert whole is not None and broken_off is not None
    # An answer in the prompt is an example, whatever its sender says of it.
    assert whole.turns == (None, None, None, 0, None, 1, None) and len(whole.asked) == 3
    assert whole.text.startswith("user:\n  0+1=\n\nassistant:\n  1\n\nuser:\n  1+2=\n\nassistant:\n  <tool_call>{")
    made = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    assert broken_off.said == [{"role": "assistant", "content": "", "tool_calls": [made]}]


async def test_an_unscorable_sample_is_null_with_a_reason() -> None:
    async for one in client(rubrics(scripted("odd"))):
        found = await one.post("/score", json={"samples": [{"completion": "good"}, {"completion": "bad"}]})
        first, second = found.json()["scores"]
        assert first["score"] == 1.0
        assert second["score"] is None and "not finite" in second["reason"]


async def test_a_scorer_that_is_down_is_a_503_and_shows_in_readyz() -> None:
    async for one in client(rubrics(scripted("down"))):
        found = await one.post("/score", json={"samples": [{"completion": "x"}]})
        assert found.status_code == 503 and int(found.headers["retry-after"]) >= 1
        assert "connection refused" in found.json()["error"]
        ready = await one.get("/readyz")
        assert ready.status_code == 503 and "down is down" in ready.json()["reason"]


async def test_a_request_beyond_the_limit_is_refused() -> None:
    made = rubrics(scripted("odd", options={"seconds": 1.0}))
    async for one in client(made, concurrency=1, timeout_s=0.2):
        body = {"samples": [{"completion": "x"}]}
        first, second = await asyncio.gather(one.post("/score", json=body), one.post("/score", json=body))
        assert sorted([first.status_code, second.status_code]) == [200, 503]


@pytest.mark.parametrize(
    "body", [{}, {"samples": []}, {"samples": [{"prompt": "x"}]}, {"samples": [{"completion": 3}]}]
)
async def test_a_body_that_is_not_a_batch_is_refused(body: dict[str, object]) -> None:
    async for one in client(rubrics(scripted("odd"))):
        assert (await one.post("/score", json=body)).status_code == 422


async def test_samples_that_fail_over_http_never_open_the_circuit(monkeypatch: pytest.MonkeyPatch) -> None:
    def needs_answer(samples: Sequence[Sample]) -> list[float]:
        return [float(sample.columns["answer"]) for sample in samples]

    install(monkeypatch, needs=needs_answer)
    made = rubrics(scripted("needs"))
    async for one in client(made):
        for _ in range(50):
            found = await one.post("/score", json={"samples": [{"completion": "x"}]})
            assert found.json()["scores"][0]["score"] is None
    assert made.room() is None and made.trouble() is None
