"""How an episode ends: by its environment's word, by a limit, or by what says nothing of the policy."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from headrace.services.environment.child.errors import (
    ChildDiedError,
    ChildLateError,
    EnvironmentFailedError,
    ToolServerLostError,
)
from headrace.services.environment.child.process import ChildProcess
from headrace.services.environment.player.limits import EpisodeLimits
from headrace.services.environment.player.state import EpisodeState
from headrace.services.environment.player.turns import TurnLateError
from headrace.wire.contracts import FinishReason

T = TypeVar("T")


class EpisodeEndedError(Exception):
    """The episode is over, for a reason other than its environment's word."""

    def __init__(self, reason: FinishReason, error: str = "") -> None:
        super().__init__(error)
        self.reason, self.error = reason, error


async def end_of(
    playing: Awaitable[FinishReason], child: ChildProcess, state: EpisodeState, limits: EpisodeLimits
) -> tuple[FinishReason, str]:
    """Plays within `episode_s`; returns the reason of the end, and the error where it is one.

    At the deadline `child` is killed. Raises ChildDiedError, and every error that does not end this episode alone.
    """
    scope = asyncio.timeout(limits.episode_s)
    try:
        async with scope:
            return await playing, ""
    except EpisodeEndedError as end:
        return end.reason, end.error
    except ChildLateError as error:
        return FinishReason.TIME, str(error)
    except TurnLateError as late:
        passed = f"environment.turn_s = {limits.turn_s:g} passed on {late.replica_id}"
        return FinishReason.TIME, f"{passed}: {state.waits_for}"
    except ChildDiedError:
        raise
    except ToolServerLostError as error:
        return FinishReason.TOOL_LOST, str(error)
    except EnvironmentFailedError as error:
        return FinishReason.ENVIRONMENT_ERROR, str(error)
    except TimeoutError:
        if not scope.expired():
            raise
        await child.kill()  # It may be in the middle of a call.
        return FinishReason.TIME, f"environment.episode_s = {limits.episode_s:g} passed: {state.waits_for}"


async def unless_failed(running: Awaitable[T], failed: "asyncio.Future[Exception]") -> T:
    """What `running` returns; raises what `failed` holds if that comes first."""
    task = asyncio.ensure_future(running)
    try:
        beside: set[asyncio.Future[Any]] = {task, failed}
        await asyncio.wait(beside, return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            raise failed.result()
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
