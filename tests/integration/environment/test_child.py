"""The user's code in a child: what it returns, raises, breaks or never ends, its worker knows and survives.

What is a claim about the environment and not about its process is shown of one that is hosted in the test's own.
"""

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.services.environment.child.config import ChildConfig
from headrace.services.environment.child.errors import ChildLateError, EnvironmentFailedError
from headrace.services.environment.child.pool import ChildPool
from headrace.services.environment.child.process import ChildProcess
from headrace.wire.errors import ConfigError
from tests.integration.environment.hosted import HostedChild
from tests.waiting import until_async

WORLDS = Path(__file__).parent / "worlds"
CONFIG = ChildConfig(path=WORLDS, network=True, start_s=120.0)
TASK = {"prompt": "go"}
LONG_S = 120.0

pytestmark = pytest.mark.timeout(400)


def need_sandbox() -> None:
    if shutil.which("bwrap") is None and os.environ.get("HEADRACE_REQUIRE_SANDBOX") != "1":
        pytest.skip("there is no bubblewrap (apt-get install bubblewrap)")


@asynccontextmanager
async def child(*tools: str, kind: type[ChildProcess] = ChildProcess, **config: Any) -> AsyncIterator[ChildProcess]:
    named = {"tools": tuple(f"games:{tool}" for tool in tools)}
    one = kind(replace(CONFIG, **{**named, **config}))
    await one.start()
    try:
        yield one
    finally:
        await one.kill()


hosted = partial(child, kind=HostedChild)


async def reset(one: ChildProcess, task: dict[str, Any] = TASK) -> dict[str, Any]:
    return dict(await one.reset(task, "r/0", 1, timeout_s=LONG_S))


async def use(one: ChildProcess, tool: str, *, seconds: float = LONG_S, **arguments: Any) -> dict[str, Any]:
    calls = [{"name": tool, "arguments": arguments}]
    return dict(await one.step({"role": "assistant", "content": "", "tool_calls": calls}, timeout_s=seconds))


async def say(one: ChildProcess, text: str) -> dict[str, Any]:
    return dict(await one.step({"role": "assistant", "content": text, "tool_calls": []}, timeout_s=LONG_S))


async def test_a_class_is_played_and_kept_for_the_next_episode() -> None:
    async with child(environment="games:Adder") as one:
        for episode in (1, 2):
            begun = await reset(one, {"a": 2, "b": 3})
            assert begun == {
                "messages": [{"role": "user", "content": f"2+3= ({episode}, r/0, 1)"}],
                "tools": [],
            }
            first = await say(one, "4")
            assert (first["done"], first["turn_reward"], first["messages"][0]["content"]) == (False, -0.25, "no")
            last = await say(one, "5")
            assert (last["done"], last["reward"], last["metrics"]) == (True, 1.0, {"tries": 2.0})
            none: dict[str, Any] = {"value": None, "components": {}, "metrics": {}}
            assert await one.reward([], timeout_s=LONG_S) == none


async def test_a_class_provides_tools_as_methods_and_one_reward_for_the_episode() -> None:
    async with hosted(environment="games:Clerk") as one:
        begun = await reset(one, {"question": "Who is Ada?"})
        assert begun["messages"] == [{"role": "user", "content": "Who is Ada?"}]
        (schema,) = begun["tools"]
        assert schema["function"] == {
            "name": "look_up",
            "description": "Looks a person up.",
            "parameters": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "Who it is."},
                    "year": {"type": "integer", "description": "In which year."},
                },
                "required": ["name"],
            },
        }
        found = await use(one, "look_up", name="Ada")
        assert found["messages"] == [{"role": "tool", "name": "look_up", "content": '{"name": "Ada", "year": 2026}'}]
        assert not found["done"] and (await say(one, "a countess"))["done"]
        reward = await one.reward([], timeout_s=LONG_S)
        assert (reward["value"], reward["components"]) == (1.0, {"asked": 1.0})


CALLS = [
    ("add", {"a": 2, "b": 3}, "5", "returned"),
    ("add", {"a": 2}, "Error: the argument 'b' is missing; the arguments are a, b", "refused"),
    ("add", {"a": 2, "b": 3, "c": 4}, "Error: there is no argument 'c'; the arguments are a, b", "refused"),
    ("add", {"a": 2, "b": "3"}, 'Error: the argument \'b\' is "3", it must be of {"type": "integer"}', "refused"),
    ("sub", {}, "Error: there is no tool 'sub'; there are add, fail", "refused"),
    ("fail", {"text": "no luck"}, "Error: RuntimeError: no luck (games.py:", "raised"),
]
"""Tool, arguments, how the answer begins, outcome."""


async def test_every_call_of_a_policy_is_answered() -> None:
    async with hosted("add", "fail") as one:
        assert (await reset(one))["messages"] == [{"role": "user", "content": "go"}]
        for tool, arguments, said, outcome in CALLS:
            answer = await use(one, tool, **arguments)
            assert answer["messages"][0]["content"].startswith(said) and not answer["done"]
            assert answer["calls"][0]["outcome"] == outcome
        assert one.alive and (await say(one, "done"))["done"]


async def test_an_error_of_the_environment_names_file_and_line_and_the_child_survives() -> None:
    line = next(n for n, text in enumerate((WORLDS / "games.py").read_text().splitlines(), 1) if "no such task" in text)
    async with child(environment="games:Raises") as one:
        for _ in range(2):
            with pytest.raises(EnvironmentFailedError, match=rf"^KeyError: 'no such task' \(games.py:{line}\)$"):
                await reset(one)
        assert one.alive


MALFORMED = {
    "17": "step returned 17, it must return a dict or None",
    "{'dun': True}": "step returned the key 'dun', which is none of its keys",
    "{'done': False}": "step returned no messages, and yet it is not done",
    "{'messages': ['a'], 'done': False}": "as messages, they must be a list of dicts",
    "{'messages': [{'role': 'user'}], 'done': False}": '"role" and "content" must be texts',
    "{'reward': float('nan')}": "step returned reward = nan, it must be a finite number",
    "{'components': {'x': 'y'}}": "step returned components.x = 'y', it must be a finite number",
}
"""What `step` returns -> why it is refused."""


async def test_a_malformed_answer_is_refused_by_name() -> None:
    async with hosted(environment="games:Says") as one:
        for answer, words in MALFORMED.items():
            await reset(one, {"answer": answer})
            with pytest.raises(EnvironmentFailedError) as caught:
                await say(one, "x")
            assert words in str(caught.value)


async def test_a_hanging_tool_is_killed_with_its_whole_process_tree() -> None:
    need_sandbox()
    async with child("hang") as one:
        await reset(one)
        call = asyncio.create_task(use(one, "hang", seconds=5.0))
        await until_async(sleepers)
        with pytest.raises(ChildLateError, match=r"step of the environment took longer than environment.tool_s = 5 s"):
            await call
        assert not one.alive
    await until_async(lambda: not sleepers())


def sleepers() -> list[str]:
    """Processes of `hang`, by their command line: in the sandbox they have other numbers."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and (folder / "cmdline").read_bytes() == b"sleep\x001000\x00":
                found.append(folder.name)
        except OSError:
            continue
    return found


async def test_memory_is_bounded() -> None:
    async with child("grow", memory_mib=400) as one:
        await reset(one)
        with pytest.raises(EnvironmentFailedError, match="MemoryError"):
            await use(one, "grow", kind="memory", mib=2000)


async def test_cpu_time_is_bounded() -> None:
    async with child("spin", cpu_s=0.1) as one:
        await reset(one)
        with pytest.raises(EnvironmentFailedError, match="was ended by SIGXCPU"):
            await use(one, "spin")
        assert not one.alive


async def test_a_flood_of_output_is_dropped_and_a_long_result_is_cut() -> None:
    mib = 64
    async with child("grow", max_result_chars=100) as one:
        await reset(one)
        assert (await use(one, "grow", kind="prints", mib=mib))["messages"][0]["content"] == "printed"
        await until_async(lambda: one.dropped_bytes >= (mib - 1) << 20)
        answer = await use(one, "grow", kind="text", mib=50)
        text = answer["messages"][0]["content"]
        assert text == "y" * 100 + f"\n[{(50 << 20) - 100} more characters were cut]"
        assert answer["calls"][0]["cut"] == (50 << 20) - 100


@pytest.mark.parametrize("network", [False, True])
async def test_the_network_is_reachable_only_if_the_config_allows_it(network: bool) -> None:
    need_sandbox()
    with socket.create_server(("127.0.0.1", 0)) as server:
        async with child("connect", network=network) as one:
            await reset(one)
            answer = await use(one, "connect", port=server.getsockname()[1])
            said = answer["messages"][0]["content"]
            assert said == "connected" if network else said.startswith("Error: ConnectionRefusedError"), said


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"environment": "games:Nobody"}, r"games.py has no 'Nobody'"),
        ({"environment": "nowhere:Adder"}, r"there is no module 'nowhere' in environment.path"),
        ({"environment": "games"}, r"is not of the form module:attribute"),
        ({"tools": ("games:unhinted",)}, r"the tool unhinted: its parameter a has no type hint"),
    ],
)
async def test_code_that_cannot_be_loaded_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        async with hosted(**config):
            pytest.fail("it was started")


async def test_code_that_fails_while_it_is_imported_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"broken:Game: ZeroDivisionError: .* \(broken.py:3\)"):
        async with child(environment="broken:Game"):
            pytest.fail("it was started")


async def test_a_dead_worker_leaves_no_child(tmp_path: Path) -> None:
    script = """
import asyncio, os, signal
from dataclasses import replace
from tests.integration.environment.test_child import CONFIG
from headrace.services.environment.child.process import ChildProcess
async def main():
    one = ChildProcess(replace(CONFIG, tools=("games:add",)))
    await one.start()
    print(one.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    out, _ = await worker.communicate()
    pid = int(json.loads(out))
    await until_async(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text())


async def test_a_class_chooses_its_tools_as_an_episode_begins() -> None:
    async with hosted(environment="games:Chooser") as one:
        for tool in ("up", "down", ""):
            begun = await reset(one, {"tool": tool})
            assert [schema["function"]["name"] for schema in begun["tools"]] == ([tool] if tool else [])
            if tool:
                assert (await use(one, tool))["messages"][0]["content"] == tool
                other = {"up": "down", "down": "up"}[tool]
                assert "there is no tool" in (await use(one, other))["messages"][0]["content"]


async def test_few_children_start_at_a_time_and_a_released_one_is_reused_first() -> None:
    starting = most = 0

    class Slow(HostedChild):
        async def start(self) -> None:
            nonlocal starting, most
            starting += 1
            most = max(most, starting)
            await asyncio.sleep(0.01)
            await super().start()
            starting -= 1

    pool = ChildPool(lambda: Slow(replace(CONFIG, tools=("games:add",))), slots=8, starts=2)

    async def play() -> ChildProcess:
        async with pool.child() as one:
            return one

    played = await asyncio.gather(*(play() for _ in range(8)))
    assert most == 2 and len(set(played)) < 8
