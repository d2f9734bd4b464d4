"""Chats go before training groups that wait, but not for ever."""

import asyncio
from collections import deque
from dataclasses import replace

from headrace.services.rollout.engines.sglang.admission import Admission
from headrace.services.rollout.engines.torch.groups import Group, enqueue
from tests.rollout_models import make_request


def group(number: int, *, chat: bool = False) -> Group:
    return Group(request=replace(make_request([1], 1, seed=number), chat=chat), deliver=lambda _: None)


def test_a_chat_queues_after_other_chats_and_before_groups() -> None:
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
