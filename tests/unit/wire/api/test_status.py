"""The status is one schema: over HTTP and in the command line that reads it."""

import json

import pytest
from pydantic import ValidationError

from headrace.wire.api.model import encode, read_answer_of
from headrace.wire.api.status import RunStatus
from headrace.wire.errors import ConfigError
from tests.status import status_json


def test_fields_of_a_newer_orchestrator_are_ignored() -> None:
    newer = status_json(replicas=[{"colour": "red"}], trainer={"mood": 1}) | {"weather": {"rain": True}}
    assert read_answer_of(RunStatus, newer, "http://host:1").replicas[0].id == "rollout-0"
    with pytest.raises(ValidationError, match="weather"):
        RunStatus.model_validate(newer)


def test_a_missing_or_wrong_status_field_is_named_with_a_fix() -> None:
    old = status_json(replicas=[{}])
    del old["replicas"][0]["tokens_per_second"]
    with pytest.raises(ConfigError, match=r"http://host:1 .*replicas\.0\.tokens_per_second: Field required.*version"):
        read_answer_of(RunStatus, old, "http://host:1")
    with pytest.raises(ConfigError, match=r"credit\.limit"):
        read_answer_of(RunStatus, status_json(credit={"limit": "many"}), "http://host:1")


def test_unset_fields_are_absent_and_values_that_json_lacks_are_null() -> None:
    status = RunStatus.model_validate(status_json(trainer={"metrics": {"loss": float("nan"), "step": 3}}))
    written = json.loads(encode(status), parse_constant=pytest.fail)
    assert "waiting_since" not in written["trainer"] and written["publication"] is None
    assert written["trainer"]["metrics"] == {"loss": None, "step": 3}
    assert written == status_json(trainer={"metrics": {"loss": None, "step": 3}})
