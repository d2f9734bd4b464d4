"""OpenAI's words: what is read, what is refused, what is answered."""

import json
from typing import Any

import pytest

from headrace.services.orchestrator.http.chat_request import read_chat, to_wire
from headrace.wire.api.openai import ChatRefusedError
from headrace.wire.v1 import rollout_pb2 as pb

MODELS = ("run", "policy")
MESSAGES = [{"role": "user", "content": "2+3="}]


def body(**more: Any) -> bytes:
    return json.dumps({"model": "policy", "messages": MESSAGES, **more}).encode()


def wire(**more: Any) -> pb.ChatRequest:
    return to_wire(read_chat(body(**more), MODELS), (3, 4), deadline_s=60.0, wait_s=5.0)


def test_chat_parameters_reach_the_replica() -> None:
    request = wire(temperature=0, top_p=0.9, stop="\n", seed=-1, max_completion_tokens=9, max_tokens=5, user="me")
    assert json.loads(request.messages_json) == MESSAGES
    assert (request.temperature, request.top_p, list(request.stop)) == (0.0, 0.9, ["\n"])
    assert (request.max_tokens, list(request.stop_token_ids)) == (9, [3, 4])
    assert request.HasField("seed") and request.seed == 2**63 - 1
    assert (request.deadline_s, request.wait_s) == (60.0, 5.0)


def test_missing_or_null_chat_parameters_get_the_api_defaults() -> None:
    plain, null = wire(), wire(temperature=None, stop=None, seed=None, max_tokens=None, n=None, tools=None)
    assert plain == null
    assert (plain.temperature, plain.top_p, plain.max_tokens) == (1.0, 1.0, 0)
    assert not plain.HasField("seed")


@pytest.mark.parametrize(
    ("change", "status", "word"),
    [
        ({"n": 2}, 400, "n:"),
        ({"messages": []}, 400, "messages"),
        ({"messages": "hello"}, 400, "messages"),
        ({"temperature": -1}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"stop": [""]}, 400, "stop"),
        ({"stop": ["x"] * 17}, 400, "at most 16"),
        ({"logprobs": True}, 400, "logprobs"),
        ({"tools": [{}]}, 400, "tools"),
        ({"frequency_penalty": 0.5}, 400, "frequency_penalty"),
        ({"logit_bias": {"1": 2}}, 400, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, 400, "only text"),
        ({"model": "gpt-4"}, 404, "'run' and 'policy'"),
    ],
)
def test_unsupported_chat_parameters_that_change_the_answer_are_rejected(
    change: dict[str, Any], status: int, word: str
) -> None:
    with pytest.raises(ChatRefusedError) as refused:
        read_chat(body(**change), MODELS)
    assert refused.value.status == status and word in refused.value.message
    assert refused.value.body()["error"]["type"] == "invalid_request_error"


def test_a_temperature_near_zero_is_greedy() -> None:
    assert wire(temperature=1e-300).temperature == 0.0
    assert wire(temperature=1e-3).temperature > 0
