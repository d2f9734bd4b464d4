"""The generate route, for its process alone."""

from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from headrace.services.environment.taskset.route import generate_app, read_request

KEY = {"Authorization": "Bearer secret"}


@pytest.fixture
def client() -> TestClient:
    calls: Any = SimpleNamespace(context_length=77)
    return TestClient(generate_app(calls, "secret"))


def test_without_the_key_nothing_is_served(client: TestClient) -> None:
    for headers in ({}, {"Authorization": "Bearer other"}):
        assert client.get("/v1/models", headers=headers).status_code == 401
        assert client.post("/inference/v1/generate", json={}, headers=headers).status_code == 401
    assert client.get("/v1/models", headers=KEY).json()["data"][0]["max_model_len"] == 77


@pytest.mark.parametrize("ids", [[], None, "x", [1.5], [-1], [True], [1 << 31], [[1]]])
def test_what_is_no_context_is_a_400(client: TestClient, ids: object) -> None:
    answer = client.post("/inference/v1/generate", json={"token_ids": ids, "sampling_params": {}}, headers=KEY)
    said = answer.json()["error"]["message"]
    assert answer.status_code == 400 and "token_ids" in said and "pydantic" not in said


def test_a_request_is_read() -> None:
    found = read_request(b'{"token_ids": [1, 2], "sampling_params": {"max_tokens": 3, "stop_token_ids": [9]}}', "s")
    assert (found.session, found.context_ids.tolist(), found.max_tokens, found.stop_token_ids) == ("s", [1, 2], 3, (9,))
