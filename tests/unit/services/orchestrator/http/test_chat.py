"""OpenAI's words: what is read, what is refused, what is answered."""

import json
from typing import Any

import pytest

from headrace.services.orchestrator.http.chat_answer import Wording, usage
from headrace.services.orchestrator.http.chat_request import ChatRefusedError, read_chat, to_wire
from headrace.wire.v1 import message_pb2
from headrace.wire.v1 import rollout_pb2 as pb

MODELS = ("run", "policy")
MESSAGES = [{"role": "user", "content": "2+3="}]
WORDING = Wording("chatcmpl-1", 1700000000, "policy")


def body(**more: Any) -> bytes:
    return json.dumps({"model": "policy", "messages": MESSAGES, **more}).encode()


def wire(**more: Any) -> pb.ChatRequest:
    return to_wire(read_chat(body(**more), MODELS), (3, 4), deadline_s=60.0, wait_s=5.0)


def piece(text: str = "", reason: str = "", **more: Any) -> pb.ChatPiece:
    old, new = message_pb2.PolicyVersion(incarnation=1, version=6), message_pb2.PolicyVersion(incarnation=1, version=7)
    return pb.ChatPiece(
        text=text, finish_reason=reason, prompt_tokens=4, completion_tokens=2, oldest_version=old, version=new,
        replica_id="rollout-1", **more,
    )  # fmt: skip


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(part.removeprefix("data: ")) for part in text.strip().split("\n\n")]


def test_what_clients_send_reaches_the_replica() -> None:
    request = wire(temperature=0, top_p=0.9, stop="\n", seed=-1, max_completion_tokens=9, max_tokens=5, user="me")
    assert json.loads(request.messages_json) == MESSAGES
    assert (request.temperature, request.top_p, list(request.stop)) == (0.0, 0.9, ["\n"])
    assert (request.max_tokens, list(request.stop_token_ids)) == (9, [3, 4])
    assert request.HasField("seed") and request.seed == 2**63 - 1
    assert (request.deadline_s, request.wait_s) == (60.0, 5.0)


def test_what_is_left_out_or_null_has_the_defaults_of_the_api() -> None:
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
def test_what_would_change_the_answer_and_cannot_be_had_is_refused(
    change: dict[str, Any], status: int, word: str
) -> None:
    with pytest.raises(ChatRefusedError) as refused:
        read_chat(body(**change), MODELS)
    assert refused.value.status == status and word in refused.value.message
    assert refused.value.body()["error"]["type"] == "invalid_request_error"


def test_a_temperature_near_nothing_is_greedy() -> None:
    assert wire(temperature=1e-300).temperature == 0.0
    assert wire(temperature=1e-3).temperature > 0


def test_a_whole_answer_tells_text_usage_and_version() -> None:
    found = WORDING.whole("5", piece("5", "stop"))
    assert found["object"] == "chat.completion" and found["system_fingerprint"] == "1.7"
    assert found["choices"][0]["message"] == {"role": "assistant", "content": "5", "refusal": None}
    assert found["choices"][0]["finish_reason"] == "stop"
    assert found["usage"] == usage(piece()) == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    assert found["headrace"] == {"replica": "rollout-1", "versions": ["1.6", "1.7"]}


def test_a_stream_opens_with_the_role_and_ends_with_the_reason_alone() -> None:
    told = events(WORDING.opening(piece("5")) + WORDING.piece(piece("5")) + WORDING.piece(piece("6", "length")))
    assert {one["object"] for one in told} == {"chat.completion.chunk"} and len({one["id"] for one in told}) == 1
    assert [one["choices"][0]["delta"] for one in told] == [
        {"role": "assistant", "content": ""}, {"content": "5"}, {"content": "6"}, {},
    ]  # fmt: skip
    assert [one["choices"][0]["finish_reason"] for one in told] == [None, None, None, "length"]
    (last,) = events(WORDING.usage_event(piece()))
    assert last["choices"] == [] and last["usage"]["total_tokens"] == 6
