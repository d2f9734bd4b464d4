"""Chats go before training groups that wait, but not for ever."""

import asyncio
from collections import deque
from dataclasses import replace

from headrace.services.rollout.engines.sglang.admission import Admission
from headrace.services.rollout.engines.sglang.requests import ServerLimits, check_request, generate_body
from headrace.services.rollout.engines.torch.groups import Group, enqueue
from tests.rollout_models import make_request

LIMITS = ServerLimits(vocab=97, context_length=128, prompt_length=120, max_requests=8)


def group(number: int, *, chat: bool = False) -> Group:
    return Group(request=replace(make_request([1], 1, seed=number), chat=chat), deliver=lambda _: None)


def test_a_chat_stands_behind_other_chats_and_before_groups() -> None:
    waiting: deque[Group] = deque()
    groups = [group(1), group(2, chat=True), group(3), group(4, chat=True)]
    for one in groups:
        enqueue(waiting, one)
    assert list(waiting) == [groups[1], groups[3], groups[0], groups[2]]


def test_a_group_that_waits_is_overtaken_a_few_times_only() -> None:
    waiting: deque[Group] = deque()
    training = group(0)
    enqueue(waiting, training)
    for number in range(1, 20):
        enqueue(waiting, group(number, chat=True))
    assert waiting.index(training) == 8


async def test_the_next_place_at_a_server_is_a_chats() -> None:
    admission, order = Admission(1), []

    async def take(name: str, *, first: bool) -> None:
        async with admission.place(first=first):
            order.append(name)

    async with admission.place():
        tasks = [asyncio.create_task(take(name, first=name == "chat")) for name in ("a", "b", "chat")]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == ["chat", "a", "b"]


def test_a_server_may_cut_the_distribution_of_a_chat_only() -> None:
    chat = replace(make_request([1], 1, top_p=0.5), chat=True)
    assert check_request(chat, LIMITS) == 127
    body = generate_body(chat, 0, [], 8, LIMITS, request_id="x", salt="")
    assert body["sampling_params"]["top_p"] == 0.5
