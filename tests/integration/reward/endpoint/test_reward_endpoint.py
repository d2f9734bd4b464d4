"""A reward model behind a real socket: order, batches, one number a sample, and nothing in place of what is missing."""

import re
from typing import Any

import numpy as np
import pytest

from headrace.services.reward.endpoint import request
from headrace.services.reward.scorer import Context, Sample, Scorer, ScorerDownError
from headrace.services.reward.scorers.registry import build_scorer
from tests.integration.reward.endpoint.scripted import Answer, Request, Scripted, answer, asking, hang, ok, scripted
from tests.reward_scorers import played_sample


def scorer(server: Scripted, *, timeout_s: float = 20.0, **options: Any) -> Scorer:
    context = Context(component="reward_endpoint", timeout_s=timeout_s, allow_hosts=(f"127.0.0.1:{server.port}",))
    return build_scorer("reward_endpoint", {"url": server.url, "attempt_s": 5.0} | options, context)


def sample(*completion: int) -> Sample:
    return Sample(
        prompt="p",
        completion="".join(map(chr, completion)),
        prompt_ids=np.array([1, 2], np.int32),
        completion_ids=np.array(completion, np.int32),
    )


def sums(request: Request) -> Answer:
    """Sum of the tokens, or the length of the text."""
    rows = request.body.get("input_ids") or request.body["text"]
    return ok([{"embedding": [float(len(row) if isinstance(row, str) else sum(row))]} for row in rows])


async def test_scores_come_back_in_order_from_batches_under_the_budget() -> None:
    samples = [sample(*range(3, 3 + size)) for size in (5, 1, 9, 2, 7, 3)]
    async with asking(scorer, otherwise=sums, token_budget=20) as (server, model):
        found = await model.score(samples)
        ids = [[1, 2, *each.completion_ids.tolist()] for each in samples if each.completion_ids is not None]
        assert [verdict.value for verdict in found] == [float(sum(row)) for row in ids]
        asked = [request.body["input_ids"] for request in server.requests]
        assert sorted(row for rows in asked for row in rows) == sorted(ids)
        assert len(asked) > 1 and all(len(rows) == 1 or len(rows) * max(map(len, rows)) <= 20 for rows in asked)
        assert server.requests[0].path == "/classify"


async def test_a_sample_of_text_is_sent_as_text_or_abstains_where_ids_are_sent() -> None:
    plain = Sample(prompt="1+2=", completion="3")
    async with scripted(otherwise=sums) as server:
        by_text, by_ids = scorer(server, send="text", model="rm"), scorer(server)
        assert [verdict.value for verdict in await by_text.score([plain])] == [5.0]
        assert server.requests[0].body == {"model": "rm", "text": ["1+2=3"]}
        mixed = await by_ids.score([plain, sample(3)])
        assert [verdict.value for verdict in mixed] == [None, 6.0] and "send = 'text'" in mixed[0].reason
        await by_text.close()
        await by_ids.close()


async def test_an_episode_is_sent_as_all_its_messages_or_as_the_last_segments_tokens() -> None:
    record = (
        '[{"role": "user", "content": "a"}, {"role": "assistant", "turn": 0, "content": "<tool_call>b</tool_call>", '
        '"tool_calls": [{"name": "b", "arguments": {}}]}, {"role": "tool", "name": "b", "content": "c"}, '
        '{"role": "assistant", "content": "d", "turn": 2}]'
    )
    played, silent = played_sample(messages_json=record), played_sample(messages_json="[]")
    async with scripted(otherwise=sums) as server:
        by_text, by_ids = scorer(server, send="text"), scorer(server)
        found = await by_text.score([played, silent])
        told = "user:\n  a\n\nassistant:\n  <tool_call>b</tool_call>\n\ntool b:\n  c\n\nassistant:\n  d"
        assert server.requests[0].body == {"text": [told]} and found[0].value == float(len(told))
        assert found[1].value is None and not found[1].failed and "send = 'ids'" in found[1].reason
        assert [one.value for one in await by_ids.score([played, silent])] == [26.0, 26.0]
        assert server.requests[1].body == {"input_ids": [[5, 7, 8, 5, 1]] * 2}
        await by_text.close()
        await by_ids.close()


async def test_openai_responses_are_ordered_by_their_index() -> None:
    def reply(request: Request) -> Answer:
        rows = list(enumerate(request.body["input"]))
        return ok({"data": [{"index": index, "embedding": [float(sum(row))]} for index, row in reversed(rows)]})

    async with asking(scorer, otherwise=reply, route="/v1/embeddings") as (_, model):
        assert [verdict.value for verdict in await model.score([sample(3), sample(4)])] == [6.0, 7.0]


BAD = {
    "2 numbers a sample": [{"embedding": [1.0, 2.0]}],
    "2 entries arrived": [{"embedding": [1.0]}] * 2,
    "0 entries arrived": [],
    "dict arrived": {"error": "x"},
    "no embedding": [{"embedding": []}],
    "'1.0' is no number": [{"embedding": ["1.0"]}],
    "'True' is no number": [{"embedding": [True]}],
    "'None' is no number": [{"embedding": [None]}],
    "has no index": {"data": [{"embedding": [1.0]}]},
}


@pytest.mark.parametrize("reason", BAD)
async def test_an_answer_without_one_number_a_sample_abstains_with_the_reason(reason: str) -> None:
    async with asking(scorer, otherwise=lambda _: ok(BAD[reason])) as (_, model):
        (found,) = await model.score([sample(3)])
        assert found.value is None and found.failed and re.search(re.escape(reason), found.reason)


async def test_a_refused_sample_costs_no_other_of_its_batch_its_score() -> None:
    def reply(request: Request) -> Answer:
        too_long = any(99 in row for row in request.body["input_ids"])
        return answer(400, b"too long") if too_long else sums(request)

    async with asking(scorer, otherwise=reply) as (server, model):
        found = await model.score([sample(3), sample(99), sample(4)])
        assert [verdict.value for verdict in found] == [6.0, None, 7.0]
        assert found[1].failed and "too long" in found[1].reason
        assert len(server.requests) == 4


async def test_batches_at_a_hanging_endpoint_end_by_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "_MOST_UNANSWERED", 100)
    async with asking(
        scorer, otherwise=lambda _: hang(), timeout_s=2.0, token_budget=1, concurrency=2, deadline_s=1.0, attempt_s=1.0
    ) as (server, model):
        found = await model.score([sample(number) for number in range(1, 13)])
        assert all(verdict.failed for verdict in found)
        # Two at a time for a second each: after the two seconds of all of them eight at least have not begun.
        unasked = [verdict.reason for verdict in found if "the requests of its group used up 2 s" in verdict.reason]
        assert len(unasked) >= 8 and len(server.requests) <= 4
        assert sum("no answer in time (1 try)" in verdict.reason for verdict in found) == len(found) - len(unasked)


async def test_a_busy_endpoint_abstains_and_an_unreachable_one_is_down() -> None:
    async with asking(scorer, otherwise=lambda _: answer(503)) as (server, model):
        (found,) = await model.score([sample(3)])
        assert found.value is None and found.failed and len(server.requests) == 4
    model = scorer(server)
    with pytest.raises(ScorerDownError):
        await model.score([sample(3)])
    await model.close()
