"""A user's environment that misbehaves on purpose: what it does is its own episode's end, and no other episode's."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from headrace.services.environment.child.errors import ChildLateError, EnvironmentFailedError
from headrace.services.environment.child.pool import ChildPool
from headrace.services.environment.child.process import ChildProcess
from tests.integration.environment.test_child import CONFIG, LONG_S
from tests.leftovers import left_running
from tests.waiting import until_async

pytestmark = pytest.mark.timeout(400)
WORTH, STEP_S = 0.25, 4.0
VARIABLE = "MISDEEDS"
ENDS = {
    "forge": "the environment's process broke the protocol: what came answers nothing that was asked",
    "abandon_a_child": "the environment's process exited with status 3",
    "close_all": "the environment's process closed its socket",
    "close_all_and_stay": "the environment's process closed its socket",
    "stop": "step of the environment took longer than environment.tool_s = 4 s",
    "interrupt": "KeyboardInterrupt: at noon",
    "cancel": "CancelledError",
    "recurse": "RecursionError: maximum recursion depth exceeded",
}
"""Misdeed -> what is said of an episode that it costs its reward."""
HARMLESS = ("answer_twice", "move", "mute", "be_deaf")


@asynccontextmanager
async def one_slot() -> AsyncIterator[ChildPool[ChildProcess]]:
    """What comes after a misdeed comes to the same process, or to its successor."""
    named = replace(CONFIG, environment="misdeeds:World", variables=(VARIABLE,))
    pool = ChildPool(lambda: ChildProcess(named), 1)
    try:
        yield pool
    finally:
        await pool.close()


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Is in the environment of every process that is started here."""
    found = secrets.token_hex(8)
    monkeypatch.setenv(VARIABLE, found)
    return found


async def played(pool: ChildPool[ChildProcess], name: str, worth: float, **task: object) -> object:
    """Reward and words of an episode, or how it failed."""
    try:
        async with pool.child() as one:
            begun = await one.reset({"worth": worth, **task}, name, 1, timeout_s=LONG_S)
            said = {"role": "assistant", "content": "", "tool_calls": []}
            step = await one.step(said, timeout_s=STEP_S)
            whole = await one.reward([], timeout_s=LONG_S)
            return begun["messages"][0]["content"], step["reward"], whole["value"]
    except (EnvironmentFailedError, ChildLateError) as error:
        return str(error)


async def test_misbehaving_code_fails_only_its_own_episode_and_the_reason_is_given(mark: str) -> None:
    found, others = {}, {}
    async with one_slot() as pool:
        for misdeed in (*ENDS, *HARMLESS):
            found[misdeed] = await played(pool, "its own", WORTH, misdeed=misdeed)
            others[misdeed] = [await played(pool, name, worth) for name, worth in (("a", 0.5), ("b", 0.75))]
        assert left_running(mark), "nothing was running"
    for misdeed, rest in others.items():
        assert rest == [("a", 0.5, 0.5), ("b", 0.75, 0.75)], misdeed
    said = {misdeed: str(found.pop(misdeed)) for misdeed in ENDS}
    unsaid = {misdeed: words for misdeed, words in said.items() if ENDS[misdeed] not in words}
    assert not unsaid, unsaid
    assert found == dict.fromkeys(HARMLESS, ("its own", WORTH, WORTH))
    await until_async(lambda: not left_running(mark), "all processes to be gone", detail=lambda: left_running(mark))


async def test_a_forged_late_answer_never_counts_for_the_next_episode(mark: str) -> None:
    async with one_slot() as pool:
        assert await played(pool, "its own", WORTH, misdeed="forge_the_next") == ("its own", WORTH, WORTH)
        other = str(await played(pool, "a", 0.5, pause_s=1.0))
        assert ENDS["forge"] in other
        # With the process its thread has ended.
        assert await played(pool, "b", 0.75, pause_s=1.0) == ("b", 0.75, 0.75)
