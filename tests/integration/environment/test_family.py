"""Episodes with a family's renderer, and what a start refuses: real gRPC, the real package."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from headrace.services.environment.app import serve
from headrace.services.environment.check import check
from headrace.services.environment.identity import environment_digest
from headrace.services.environment.play_once import play_once
from headrace.services.environment.settings import EnvironmentSettings, EnvironmentTable, PlayOnceSettings, PlayTable
from headrace.wire.contracts import FinishReason
from headrace.wire.errors import ConfigError
from headrace.wire.v1 import rollout_pb2 as pb
from tests.integration.environment.stage import play, played, stage
from tests.integration.environment.test_episode import sampled, seen
from tests.unit.services.environment.rendering.qwen3 import QWEN3, model_folder

pytestmark = pytest.mark.timeout(400)
WORLDS = Path(__file__).parent / "worlds"
SAID = [
    # The template writes thoughts without the empty lines, and so not the turn that was sampled.
    '<think>\n\n\nI add.\n</think><tool_call>\n{"name": "add", "arguments": {"a": 12, "b": 34}}\n</tool_call>',
    '<tool_call>\n{"name": "add", \n</tool_call>',
    '<tool_call>\n{"name": "no", "arguments": {}}\n</tool_call>',
    "it is 46",
]


def says(text: str, request: pb.SampleRequest) -> str:
    return SAID[request.turn]


async def test_a_family_keeps_one_segment_where_the_template_splits_the_conversation(tmp_path: Path) -> None:
    model: dict[str, Any] = {"template": QWEN3, "model": model_folder, "renderer": "qwen3"}
    async with stage(tmp_path, says, tools=("games:add",), limits={"max_turns": 6}, **model) as it:
        rollout = await play(it, played({"prompt": "what is 12 + 34?"}))
        asked = it.replicas["rollout-0"].asked
        assert rollout.finish_reason is FinishReason.STOP and rollout.text == "it is 46"
        assert rollout.episode is not None and len(rollout.episode.segments) == 1
        assert sampled(rollout, it.tokenizer) == [f"{text}<|im_end|>" for text in SAID]
        messages = json.loads(rollout.episode.messages_json)
        # People read what was said, and the calls that could be made.
        assert [one["content"] for one in messages if one["role"] == "assistant"] == SAID
        results = [(one["outcome"], one["content"]) for one in messages if one["role"] == "tool"]
        assert [outcome for outcome, _ in results] == ["returned", "malformed", "refused"]
        assert results[0][1] == "46" and "call 1 is no call of a tool" in results[1][1]
        assert [one.name for one in seen(rollout).messages if one.outcome == "returned"] == ["add"]
        stops = [set(it.tokenizer.convert_ids_to_tokens(list(one.sampling.stop_token_ids))) for one in asked]
        assert stops == [{"<|im_end|>", "<|endoftext|>"}] * 4


def settings(folder: Path, template: str, **table: Any) -> EnvironmentSettings:
    environment = EnvironmentTable(path=WORLDS, network=True, sandbox="none", **table)
    return EnvironmentSettings.model_validate(
        {
            "run": {"id": "r"},
            "run_dir": folder,
            "orchestrator_address": "127.0.0.1:1",
            "broker": {"url": "redis://127.0.0.1:1"},
            "model": {"path": model_folder(folder / "model", template)},
            "environment": environment,
            "environment_digest": environment_digest(environment),
        }
    )


async def test_a_start_accepts_a_family_that_agrees_with_the_template(tmp_path: Path) -> None:
    assert await check(settings(tmp_path, QWEN3, renderer="qwen3", tools=("games:add",))) == 0


OTHER = QWEN3.replace("{{- tool | tojson }}", "{{- tool.function | tojson }}")
REFUSED = re.escape('environment.renderer = "qwen3": renders a short conversation with the environment\'s tools')


async def test_a_service_refuses_before_it_takes_anything(tmp_path: Path) -> None:
    given = settings(tmp_path, OTHER, renderer="qwen3", tools=("games:add",))
    # There is no broker at its address: it is not asked.
    with pytest.raises(ConfigError, match=REFUSED):
        await serve(given)
    play = PlayOnceSettings(**given.__dict__, play=PlayTable(task_json="{}", address="127.0.0.1:1"))
    with pytest.raises(ConfigError, match=REFUSED):
        await play_once(play)
