"""What an agent's endpoint refuses of a request, by the name of the field."""

import json
from typing import Any

import pytest

from headrace.services.environment.agent.requests import read_request
from headrace.wire.api.openai import ChatRefusedError
from headrace.wire.contracts import Sampling

ASKED = {"model": "policy", "messages": [{"role": "user", "content": "q"}], "temperature": 1, "n": 1, "seed": 3}


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
def test_a_field_that_is_not_honoured_is_refused_by_its_name(field: str, value: Any) -> None:
    assert read_request(json.dumps(ASKED).encode(), Sampling()).max_tokens is None
    with pytest.raises(ChatRefusedError) as refused:
        read_request(json.dumps({**ASKED, field: value}).encode(), Sampling())
    assert str(refused.value.param).startswith(field), refused.value.param
