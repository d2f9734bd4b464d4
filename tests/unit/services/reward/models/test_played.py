"""A reward model scores an episode as the policy saw it: by its ids, by the model's own template, or not at all."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from headrace.services.reward.http_api import ScoreSample, sample_of
from headrace.services.reward.scorer import Sample
from headrace.wire.contracts import Segment
from tests.reward_scorers import played_sample as played
from tests.unit.services.reward.models.test_reward_model import alone, scored, write_folder

CALLS = "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments.who }}{% endfor %}"
TEMPLATE = (
    "{% for m in messages %}{{ 'u' if m.role == 'user' else 't' if m.role == 'tool' else 'v' }}"
    "{{ m.name or '' }}{{ m.content }}" + CALLS + "<end>{% endfor %}{% if add_generation_prompt %}v{% endif %}"
)
REFUSES = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{% endfor %}a<end>"
)
TOLD: list[dict[str, Any]] = [
    {
        "role": "assistant",
        "content": "ab",
        "tool_calls": [{"function": {"name": "find", "arguments": '{"who": "abe"}'}}],
    },
    {"role": "tool", "name": "find", "content": "cd"},
    {"role": "assistant", "content": "ef"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("chat"), template=TEMPLATE)


def text_episode(completion: list[dict[str, Any]] = TOLD) -> Sample:
    return sample_of(ScoreSample.model_validate({"prompt": "abc", "completion": completion}))


async def one(folder: Path, sample: Sample, **options: Any) -> Any:
    (found,) = await scored(folder, [sample], **options)
    return found


async def test_a_single_segment_episode_is_scored_with_its_tool_output(folder: Path) -> None:
    sample = played(segments=(Segment(start=0, context_ids=np.array([5, 6], np.int32)),))
    found = await one(folder, sample)
    assert found.value == pytest.approx(alone(folder, [5, 6, 3, 9, 4, 5, 1]), abs=1e-6)
    assert found.value != pytest.approx(alone(folder, [5, 6, 3, 4, 5, 1]), abs=1e-4), "without the tool's token"


async def test_the_last_segment_of_the_conversation_is_scored(folder: Path) -> None:
    assert (await one(folder, played())).value == pytest.approx(alone(folder, [5, 7, 8, 5, 1]), abs=1e-6)
    # An agent: what it asked the policy beside its conversation is a segment behind it.
    record = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "turn": 0},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d", "turn": 1},
        {"role": "note", "content": "call 3 of the policy, trained, in another conversation or before an edit: e"},
    ]
    found = await one(folder, played(messages_json=json.dumps(record)))
    assert found.value == pytest.approx(alone(folder, [5, 6, 3, 9, 4]), abs=1e-6)


async def test_an_episode_that_came_as_text_is_written_by_the_models_own_template(folder: Path) -> None:
    expected = AutoTokenizer.from_pretrained(folder)("uabc<end>vabfindabe<end>tfindcd<end>vef<end>")["input_ids"]
    found = await one(folder, text_episode())
    assert found.value == pytest.approx(alone(folder, expected), abs=1e-6), found.reason
    # What others said behind the policy's last message is nothing that it did.
    later = await one(folder, text_episode([*TOLD, {"role": "user", "content": "g"}]))
    assert later.value == found.value
    # One message of the assistant is a completion, scored as ever.
    single = await one(folder, text_episode([{"role": "assistant", "content": "ef"}]))
    assert single == await one(folder, Sample(prompt="abc", completion="ef"))


@pytest.mark.parametrize(
    ("template", "options", "words"),
    [
        ("", {}, r"rm: the episode came as text, and .* has no chat template .* chat_template\.jinja"),
        (TEMPLATE, {"chat_template": "never"}, "has no chat template"),
        (TEMPLATE.replace(CALLS, ""), {}, "rm: the chat template of .* leaves out calls of tools"),
        (TEMPLATE.replace("messages %}", "messages if m.role != 'tool' %}"), {}, "leaves out what tools returned"),
        (REFUSES, {}, "rm: the chat template refuses the conversation: no tools"),
    ],
)
async def test_an_episode_that_the_template_cannot_render_abstains_without_failing(
    tmp_path: Path, template: str, options: dict[str, Any], words: str
) -> None:
    path = write_folder(tmp_path, template=template)
    beside = Sample(prompt="abc", completion="ef")
    told, plain = await scored(path, [text_episode(), played()], **options)
    assert told.value is None and not told.failed
    assert pytest.approx(alone(path, [5, 7, 8, 5, 1]), abs=1e-6) == plain.value
    assert re.search(words, told.reason), told.reason
    if template != REFUSES:
        assert (await one(path, beside, **options)).value is not None
