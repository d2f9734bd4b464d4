"""TRL's `environment_factory` as a child hosts it: what TRL 1.16 would call, say and reward, for a batch of one.

The texts are those of `GRPOTrainer._tool_call_loop`: `str(result)`, and `str({"error": str(e)})`.
"""

import json
import sys
from typing import Any

import pytest
from transformers.utils import get_json_schema

from headrace.services.environment.child.errors import EnvironmentFailedError
from headrace.wire.errors import ConfigError
from tests.integration.environment.test_child import LONG_S, hosted, say, use

pytestmark = pytest.mark.timeout(400)
PROMPT = [{"role": "system", "content": "Play."}, {"role": "user", "content": "Catch it:"}]
ROW = {"prompt": PROMPT, "column": 2}


def of_trl(name: str, *rewards: str, tools: tuple[str, ...] = ()) -> Any:
    return hosted(
        environment=f"trl:catch:{name}",
        rewards=tuple(f"catch:{one}" for one in rewards),
        tools=tuple(f"catch:{one}" for one in tools),
    )


async def begin(one: Any, row: dict[str, Any] = ROW) -> dict[str, Any]:
    return dict(await one.reset(row, "r/0", 1, timeout_s=LONG_S))


async def content(one: Any, tool: str, **arguments: Any) -> str:
    (message,) = (await use(one, tool, **arguments))["messages"]
    assert (message["role"], message["name"]) == ("tool", tool)
    return str(message["content"])


async def test_the_policy_gets_the_same_messages_and_tools_as_under_trl() -> None:
    async with of_trl("Catch", "caught", tools=("dice",)) as one:
        begun = await begin(one)
        said = {"role": "user", "content": "Catch it: ball 2, paddle 1"}
        assert begun["messages"] == [PROMPT[0], said]
        catch: Any = sys.modules["catch"]
        game = catch.Catch()
        assert begun["tools"] == [get_json_schema(tool) for tool in (catch.dice, game.move, game.wait)]
        assert await content(one, "move", direction="left") == "ball 2, paddle 0"
        assert await content(one, "wait") == "{'row': 2}"
        assert await content(one, "dice", sides=6) == "6"
        assert await content(one, "move", direction="up") == "{'error': \"'up'\"}"
        assert "unexpected keyword argument" in await content(one, "move", direction="left", far=1)
        assert await content(one, "_hidden") == "{'error': 'Tool _hidden not found.'}"
        assert await content(one, "get_reward") == "{'error': 'Tool get_reward not found.'}"
        assert (await say(one, "done"))["done"] is True
        again = await begin(one, {"prompt": "Catch it:", "column": 0})
        assert again["messages"] == [{"role": "user", "content": "Catch it: ball 0, paddle 1"}]


async def test_rewards_are_added_where_they_apply_and_each_has_its_name() -> None:
    async with of_trl("Catch", "caught", "brief") as one:
        messages = (await begin(one))["messages"]
        first = await one.reward(messages, timeout_s=LONG_S)
        # `caught` returned None: it does not apply to a game that goes on.
        assert first == {"value": 0.0022, "components": {"brief": 0.0022}, "metrics": {"calls": 0.0}}
        for direction in ("right", "stay"):
            await use(one, "move", direction=direction)
            calls = [{"name": "move", "arguments": {"direction": direction}}]
            text = f"<tool_call>{json.dumps(calls[0])}</tool_call>"
            messages = [*messages, {"role": "assistant", "content": text, "tool_calls": calls}]
        both = await one.reward(messages, timeout_s=LONG_S)
        assert both["components"] == pytest.approx({"caught": 1.0, "brief": -0.0178})
        assert both["value"] == pytest.approx(0.9822) and both["metrics"] == {"calls": 2.0}


async def test_a_row_chooses_among_several_and_a_class_may_own_its_reward() -> None:
    async with of_trl("GAMES", "caught") as one:
        for name, value in (("catch", 1.0), ("scored", 3.0)):
            await begin(one, ROW | {"environment": name})
            for direction in ("right", "stay"):
                await use(one, "move", direction=direction)
            found = await one.reward([], timeout_s=LONG_S)
            assert found["value"] == value, found
            assert found["components"] == {"caught": 1.0} | ({"Scored": 2.0} if name == "scored" else {})
        with pytest.raises(EnvironmentFailedError, match="environment is 'chess'; there are catch, scored"):
            await begin(one, ROW | {"environment": "chess"})


@pytest.mark.parametrize(
    ("name", "rewards", "words"),
    [
        ("NoReset", (), "catch:NoReset: NoReset has no method reset"),
        ("Undocumented", (), "the tool leap: .*far"),
        ("Catch", ("needs_ids",), "needs_ids needs completion_ids"),
        ("Catch", ("caught", "caught"), "two rewards have the name caught"),
        ("PROMPT", (), "has no 'PROMPT'"),
        ("__name__", (), "it is no environment_factory"),
    ],
)
async def test_classes_that_trl_rejects_are_rejected_at_the_start(
    name: str, rewards: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        async with of_trl(name, *rewards):
            pytest.fail("it was started")


async def test_images_and_a_wrong_number_of_rewards_end_the_episode_with_the_reason() -> None:
    async with of_trl("Pictures") as one:
        with pytest.raises(EnvironmentFailedError, match="images cannot"):
            await begin(one)
    async with of_trl("Catch", "two") as one:
        await begin(one)
        with pytest.raises(EnvironmentFailedError, match=r"two returned .* a list of one number"):
            await one.reward([], timeout_s=LONG_S)
