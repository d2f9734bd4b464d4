"""What is left of an episode's turns and tokens."""

import asyncio

import pytest

from headrace.services.environment.player.budget import BudgetSpentError, TurnBudget
from headrace.services.environment.player.limits import EpisodeLimits
from headrace.wire.contracts import FinishReason


def budget(most: int = 100, **changes: int) -> TurnBudget:
    given = {"max_turns": 3, "max_turn_tokens": 0, "context_length": 1000} | changes
    return TurnBudget(EpisodeLimits(**given, episode_s=9.0, turn_s=9.0, tool_s=9.0), most)


async def spent(made: TurnBudget, tokens: int, context: int = 10) -> tuple[int, int]:
    async with made.turn(context, 0) as (number, most):
        await asyncio.sleep(0)
        made.spend(tokens)
    return number, most


async def test_turns_share_the_tokens_of_the_episode() -> None:
    made = budget()
    assert [await spent(made, 40), await spent(made, 40), await spent(made, 20)] == [(0, 100), (1, 60), (2, 20)]
    with pytest.raises(BudgetSpentError, match=r"max_turns = 3 are used up"):
        await spent(made, 1)
    assert made.limit is FinishReason.TURN_LIMIT


async def test_turns_that_wait_for_tokens_are_counted_when_they_begin() -> None:
    made = budget(max_turns=2)
    # The first holds all that is left; the others wait, and of them one may still begin.
    found = await asyncio.gather(*(spent(made, 10) for _ in range(4)), return_exceptions=True)
    assert found[:2] == [(0, 100), (1, 90)]
    assert [one.reason for one in found[2:] if isinstance(one, BudgetSpentError)] == [FinishReason.TURN_LIMIT] * 2


async def test_a_full_context_or_token_budget_ends_with_length() -> None:
    for made, context in ((budget(most=5), 10), (budget(), 1000)):
        if context == 10:
            await spent(made, 5)
        with pytest.raises(BudgetSpentError) as caught:
            await spent(made, 1, context)
        assert (caught.value.reason, made.limit) == (FinishReason.LENGTH, FinishReason.LENGTH)
        assert caught.value.code == "context_length_exceeded"
