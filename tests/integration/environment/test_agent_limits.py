"""What an agent's endpoint refuses, and how the limits of an episode end it."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.wire.contracts import FinishReason
from tests.integration.environment.agents import agent_stage, play
from tests.integration.environment.test_agent import error_of, sandbox

__all__ = ["sandbox"]
pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("sandbox")]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("temperature", 0.3),
        ("response_format", {"type": "json_object"}),
        ("logit_bias", {"5": 1}),
        ("stop", ["x"]),
        ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]),
        ("model", "gpt-5"),
        ("reasoning_effort", "low"),
        ("min_p", 0.1),
    ],
)
async def test_what_is_not_honoured_is_refused_by_its_name(field: str, value: Any) -> None:
    from headrace.services.environment.agent.requests import read_request
    from headrace.wire.api.openai import ChatRefusedError
    from headrace.wire.contracts import Sampling

    asked = {"model": "policy", "messages": [{"role": "user", "content": "q"}], "temperature": 1, "n": 1, "seed": 3}
    assert read_request(json.dumps(asked).encode(), Sampling()).max_tokens is None
    with pytest.raises(ChatRefusedError) as refused:
        read_request(json.dumps({**asked, field: value}).encode(), Sampling())
    assert str(refused.value.param).startswith(field), refused.value.param


async def test_refusals_reach_the_client_as_its_own_errors(tmp_path: Path) -> None:
    program = """
    import openai
    try:
        ask(USER, n=2)
        sys.exit("n = 2")
    except openai.BadRequestError as error:
        assert error.param == "n", error
    try:
        OpenAI(api_key="sk-other").models.list()
        sys.exit("the key is not checked")
    except openai.AuthenticationError as error:
        assert error.code == "invalid_api_key"
    try:
        client.embeddings.create(model="policy", input="x")
        sys.exit("embeddings")
    except openai.NotFoundError:
        ask(USER)
    """
    async with agent_stage(tmp_path, program) as it:
        rollout = await play(it)
        assert (rollout.finish_reason, error_of(rollout)) == (FinishReason.STOP, "")


@pytest.mark.parametrize(
    ("limits", "sampling", "code", "reason", "turns"),
    [
        ({"max_turns": 2}, {}, "turn_limit", FinishReason.TURN_LIMIT, 2),
        ({}, {"max_tokens": 5}, "context_length_exceeded", FinishReason.LENGTH, 2),
        ({"context_length": 24}, {}, "context_length_exceeded", FinishReason.LENGTH, 2),
    ],
    ids=["turns", "tokens of the episode", "the context"],
)
async def test_a_limit_ends_an_episode_which_is_scored_as_it_stands(
    tmp_path: Path, limits: dict[str, Any], sampling: dict[str, Any], code: str, reason: FinishReason, turns: int,
) -> None:  # fmt: skip
    program = f"""
    open("reward.txt", "w").write("0.5")
    messages = [USER]
    try:
        while True:
            messages += [said(ask(*messages)), USER]
    except Exception as error:
        assert error.code == {code!r}, error
        raise
    """
    async with agent_stage(tmp_path, program, limits=limits, reward_file="reward.txt") as it:
        rollout = await play(it, **sampling)
        assert (rollout.finish_reason, error_of(rollout)) == (reason, "") and not rollout.must_abstain
        assert rollout.episode is not None and len(rollout.episode.turn_ends) == turns
        assert rollout.episode.reward is not None and rollout.episode.reward.value == 0.5
