"""Traces of episodes: what each turn and each call of tools took, under the group."""

from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace.wire.telemetry.logs import new_traceparent
from tests.integration.environment.stage import stage
from tests.integration.environment.test_groups import Works, calls, working
from tests.spans import parent, recording, traceparent

pytestmark = pytest.mark.timeout(400)


async def test_a_trace_has_the_episodes_of_a_group_their_turns_and_their_calls_of_tools(tmp_path: Path) -> None:
    with recording() as kept:
        trace = new_traceparent()
        says = calls("add", a=1, b=2)
        async with stage(tmp_path, says, tools=("games:add",)) as it, AsyncExitStack() as stack:
            works = Works(it, tmp_path)
            await working(stack, works)
            await works.issue(0, {"prompt": "add"}, trace=trace, size=2)
            await works.rollouts(1)
        below: dict[str, list[Any]] = defaultdict(list)
        for span in kept.spans:
            below[parent(span)].append(span)
        (play,) = below[trace]
        episodes = below[traceparent(play)]
        assert {one.name for one in episodes} == {"episode"}
        named = {str((one.attributes or {})["headrace.rollout_id"]) for one in episodes}
        assert named == {"test/g00000000/0", "test/g00000000/1"}
        for one in episodes:
            told = one.attributes or {}
            assert (told["headrace.end"], told["headrace.turns"]) == ("stop", 2) and told["headrace.tokens"] > 2
            first, tools, second = sorted(below[traceparent(one)], key=lambda span: span.start_time or 0)
            assert [span.name for span in (first, tools, second)] == ["turn", "tools", "turn"]
            assert (first.attributes or {})["headrace.replica"] == "rollout-0"
            assert (tools.attributes or {})["headrace.names"] == ("add",)
