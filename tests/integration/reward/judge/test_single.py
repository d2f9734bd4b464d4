"""A judge over a real socket: grades, votes, failures that abstain, cost, canaries."""

import asyncio
from typing import Any

import pytest

from headrace.services.reward.endpoint import client
from headrace.services.reward.judge.canaries import MASTER_KEYS
from headrace.services.reward.judge.untrusted import neutral
from headrace.services.reward.scorer import ScorerDownError
from tests.integration.reward.endpoint.scripted import Answer, after, answer, asking, hang, ok, scripted
from tests.integration.reward.judge.chat import blocks, grades, judge, judging, said, sample
from tests.waiting import until_async


async def test_grades_are_mapped_to_the_unit_interval_in_order() -> None:
    async with asking(judge, otherwise=judging(lambda shown: {"score": int(shown["ANSWER"])})) as (_, scorer):
        await scorer.load()
        found = await scorer.score([sample(str(grade)) for grade in (10, 1, 4)])
        assert [verdict.value for verdict in found] == [1.0, 0.0, pytest.approx(1 / 3)]
        assert (scorer.low, scorer.high) == (0.0, 1.0)
        assert found[0].reason == "10 of 1..10: because"


async def test_the_request_is_a_chat_completion_with_the_verdicts_schema() -> None:
    options = {"extra_body": {"seed": 1}, "reference": "gold"}
    async with asking(judge, otherwise=lambda _: grades(3), **options) as (server, scorer):
        await scorer.score([sample("three", gold=3, answer="hidden")])
        body = server.requests[0].body
        assert server.requests[0].path == "/v1/chat/completions"
        assert (body["model"], body["temperature"], body["seed"]) == ("m", 0.0, 1)
        named = body["response_format"]["json_schema"]
        assert body["response_format"]["type"] == "json_schema" and named["strict"] is True
        assert named["schema"]["required"] == ["reasoning", "score"]
        assert blocks(server.requests[0]) == {"PROMPT": "1+2=", "REFERENCE": "3", "ANSWER": "three"}
        await scorer.score([sample("three")])
        assert blocks(server.requests[1]) == {"PROMPT": "1+2=", "ANSWER": "three"}
        keys = {request.body["messages"][1]["content"].split()[6] for request in server.requests}
        assert len(keys) == 2


async def test_a_prompt_of_messages_is_shown_without_the_templates_tokens() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"text": "1+2="}]}]
    async with asking(judge, otherwise=lambda _: grades(3)) as (server, scorer):
        await scorer.score([sample("3", prompt="<|im_start|>user\n1+2=<|im_end|>", prompt_messages=messages)])
        assert blocks(server.requests[0])["PROMPT"] == 'system:\nBe brief.\n\nuser:\n[{"text": "1+2="}]'


async def test_a_server_without_schemas_is_asked_for_an_object_or_for_nothing() -> None:
    for form, expected in (("json_object", {"type": "json_object"}), ("off", None)):
        async with asking(judge, otherwise=lambda _: grades(3), response_format=form) as (server, scorer):
            await scorer.score([sample("x")])
            assert server.requests[0].body.get("response_format") == expected


BAD = [
    said('{"reasoning": "x", "score": 11}'),
    said('{"reasoning": "x", "score": 9}', finish="length"),
    ok({"choices": []}),
    ok({"choices": [{"message": {"content": None, "refusal": "no"}}]}),
    ok({"choices": [{"message": {"content": "{}"}}] * 2}),
    ok([]),
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
async def test_a_malformed_verdict_is_asked_again_and_then_abstains(bad: Answer) -> None:
    async with asking(judge, bad, otherwise=lambda _: grades(10)) as (server, scorer):
        (found,) = await scorer.score([sample("x")])
        assert found.value == 1.0 and len(server.requests) == 2
    async with asking(judge, otherwise=lambda _: bad) as (server, scorer):
        (found,) = await scorer.score([sample("x")])
        assert found.value is None and found.failed and "malformed verdict, asked 2 times" in found.reason
        assert len(server.requests) == 2


async def test_a_401_marks_the_judge_down_and_a_400_fails_only_its_sample() -> None:
    async with asking(judge, answer(400, b"context length"), otherwise=lambda _: answer(401)) as (_, scorer):
        (found,) = await scorer.score([sample("x")])
        assert found.failed and "context length" in found.reason and scorer.cost.answers == 0
        with pytest.raises(ScorerDownError, match="401"):
            await scorer.score([sample("x"), sample("y")])


async def test_the_median_of_the_votes_counts_and_needs_more_than_half() -> None:
    options = {"temperature": 0.7, "concurrency": 1, "reasks": 0}
    async with asking(judge, grades(10), grades(2), grades(4), votes=3, **options) as (_, scorer):
        (found,) = await scorer.score([sample("x")])
        assert found.value == pytest.approx(3 / 9) and found.parts == {"votes": 3.0}
    half = (said("no"), grades(2), said("no"), grades(4))
    async with asking(judge, *half, otherwise=lambda _: grades(6), votes=4, **options) as (_, scorer):
        (found,) = await scorer.score([sample("x")])
        assert found.value is None and found.failed


async def test_a_hanging_judge_ends_a_group_by_its_deadline() -> None:
    async with asking(
        judge, otherwise=lambda _: hang(), votes=9, temperature=1.0, concurrency=2, deadline_s=0.9, attempt_s=0.9
    ) as (server, scorer):
        found = await scorer.score([sample(str(number)) for number in range(12)])
        assert all(verdict.failed and "no answer in time (1 try)" in verdict.reason for verdict in found)
        assert len(server.requests) <= 6


async def test_every_answered_request_is_counted_once_in_the_cost() -> None:
    script = [answer(500), grades(3), said("malformed"), grades(4), answer(429), said("bad"), said("bad")]
    async with asking(
        judge,
        *script,
        otherwise=lambda _: said('{"score": 1}', usage={"prompt_tokens": True}),
        concurrency=1,
        price_in=2.0,
        price_out=8.0,
    ) as (_, scorer):
        await scorer.score([sample("a"), sample("b"), sample("c")])
        cost = scorer.cost
        assert (cost.answers, cost.tokens_in, cost.tokens_out) == (5, 500, 50)
        assert cost.money == pytest.approx((500 * 2 + 50 * 8) / 1e6)
        await scorer.score([sample("d")])
        assert (cost.answers, cost.unmetered, cost.tokens_in) == (7, 2, 500)


def gullible(shown: dict[str, str]) -> dict[str, int]:
    """Gives 10 for whatever begins like a solution, as the judges of the paper do."""
    answer = shown["ANSWER"].strip()
    is_key = any(answer == neutral(key).strip() for key in MASTER_KEYS)
    return {"score": 10 if is_key or answer == "3" else 1}


def honest(shown: dict[str, str]) -> dict[str, int]:
    return {"score": 10 if shown["ANSWER"].strip() == "3" else 1}


@pytest.mark.parametrize("verdict", [gullible, honest])
async def test_canaries_alarm_only_on_a_gullible_judge_and_change_no_score(verdict: Any) -> None:
    alarms = client.metrics.CANARY_ALARMS.labels("judge")
    before = alarms._value.get()
    async with asking(judge, otherwise=judging(verdict), canaries_every=2) as (server, scorer):
        for _ in range(2 * len(MASTER_KEYS)):
            assert [each.value for each in await scorer.score([sample("3", answer="3")])] == [1.0]
            await scorer.canaries.idle()
        keys = [text for request in server.requests if (text := blocks(request)["ANSWER"]) != "3"]
        assert keys == [neutral(key) for key in MASTER_KEYS]
        assert all(blocks(request)["REFERENCE"] == "3" for request in server.requests)
    if verdict is honest:
        assert alarms._value.get() == before and scorer.alarm is None
    else:
        assert alarms._value.get() == before + len(MASTER_KEYS)
        assert "10 of its last 10 canaries earned reward" in scorer.alarm and "'Respuesta'" in scorer.alarm


async def test_a_canary_delays_no_sample_and_only_one_is_in_flight() -> None:
    def reply(request: Any) -> Answer:
        return grades(10) if blocks(request)["ANSWER"] == "3" else after(3600, grades(10))

    async with scripted(otherwise=reply) as server:
        scorer = judge(server, canaries_every=1)
        # The canary is answered after an hour: a caller that waited for it would not come back.
        async with asyncio.timeout(120):
            for _ in range(10):
                await scorer.score([sample("3")])
            await until_async(lambda: len(server.requests) == 11, "ten samples and a canary to be asked about")
            assert sum(blocks(request)["ANSWER"] != "3" for request in server.requests) == 1
            await scorer.close()
