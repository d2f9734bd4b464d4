"""Rollouts out of parts: what an abort hides, and which requests use which adapter."""

import asyncio
from typing import Any

from headrace.services.rollout.engines.sglang.generation import Generation
from headrace.services.rollout.engines.sglang.requests import Adapter, ServerLimits
from headrace.wire.contracts import FinishReason, PolicyVersion
from tests.rollout_models import make_request

LIMITS = ServerLimits(vocab=97, context_length=256, prompt_length=249, max_requests=9)
ONE, TWO = (PolicyVersion(incarnation=1, version=number) for number in (1, 2))


class Scripted:
    """Answers one request after the other."""

    def __init__(self, *answers: tuple[list[int], str, str]) -> None:
        self.answers = list(answers)
        self.bodies: list[dict[str, Any]] = []
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.at_most = len(answers)
        """So many are answered; the next one waits."""

    async def generate(self, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        self.bodies.append(body)
        self.asked.set()
        await self.go_on.wait()
        number = len(self.bodies)
        while number > self.at_most:
            await asyncio.sleep(0)
        tokens, reason, version = self.answers.pop(0)
        return {
            "output_ids": tokens,
            "meta_info": {
                "output_token_logprobs": [[-1.0, token, None] for token in tokens],
                "finish_reason": {"type": reason},
                "weight_versions": [{"version": version, "start": 0, "end": len(tokens)}] if tokens else [],
                "prompt_tokens": 3,
                "cached_tokens": 0,
            },
        }


def generation(client: Scripted) -> Generation:
    made = Generation(client, LIMITS, max_rows=8, request_timeout_s=10)  # type: ignore[arg-type]
    made.digests |= {ONE: "d1", TWO: "d2"}
    return made


async def test_a_stop_token_that_came_with_an_abort_ends_the_rollout() -> None:
    client = Scripted(([5, 7], "abort", "1.1"), ([3, 4, 7], "stop", "1.2"))
    (rollout,) = await generation(client).generate(make_request([1, 2, 3], 1, max_tokens=20, stop_token_ids=(7,)))
    assert (rollout.token_ids.tolist(), rollout.finish_reason) == ([5, 7], FinishReason.STOP)
    assert len(client.bodies) == 1


async def test_a_group_is_as_old_as_its_oldest_returned_token() -> None:
    client = Scripted(([5, 7], "stop", "1.1"), ([3, 4, 6], "abort", "1.2"), ([8, 7], "stop", "1.2"))
    client.go_on.clear()
    made = generation(client)
    request = make_request([1, 2, 3], 2, max_tokens=20, stop_token_ids=(7,))
    under_way = asyncio.create_task(made.generate(request))
    await client.asked.wait()
    assert made.begun(request.group_id) is None and made.begun("another") is None
    client.at_most = 2
    client.go_on.set()
    while (begun := made.begun(request.group_id)) is None or len(begun.lengths) < 2:
        await asyncio.sleep(0)
    assert (begun.oldest, begun.lengths) == (1, (2, 3))
    client.at_most = 3
    await under_way
    assert made.begun(request.group_id) is None


async def test_an_adapter_is_in_use_until_the_last_request_that_names_it_is_answered() -> None:
    client = Scripted(([5, 7], "stop", "default"))
    client.go_on.clear()
    made = generation(client)
    made.adapter = Adapter("1.1-1", ONE)
    under_way = asyncio.create_task(made.generate(make_request([1, 2, 3], 1, max_tokens=20, stop_token_ids=(7,))))
    await client.asked.wait()
    made.adapter = Adapter("1.2-2", TWO)
    assert client.bodies[0]["lora_path"] == "1.1-1"
    assert made.uses("1.1-1") and not made.uses("1.2-2")
    client.go_on.set()
    (rollout,) = await under_way
    assert not made.uses("1.1-1")
    assert [span.version for span in rollout.spans] == [ONE]
