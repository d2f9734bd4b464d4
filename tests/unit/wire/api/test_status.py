"""The status is one schema: over HTTP, over gRPC and in the command line that reads it."""

import json
import types
import typing
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from pydantic import ValidationError

from headrace.wire.api.model import ApiModel, encode, read_answer_of
from headrace.wire.api.status import RunStatus
from headrace.wire.api.status_proto import status_to_proto
from headrace.wire.errors import ConfigError
from headrace.wire.v1 import orchestrator_pb2 as pb
from tests.status import status_from_proto, status_json


def filled(annotation: Any, name: str) -> Any:
    """A value of the type in which nothing is empty, zero or None."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return filled(next(one for one in reversed(arguments) if one is not type(None)), name)
    if origin is tuple:
        return (filled(arguments[0], name),)
    if origin is dict:
        return {f"{name}-key": filled(arguments[1], name)}
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        return annotation(**{key: filled(field.annotation, key) for key, field in annotation.model_fields.items()})
    return {str: name, int: len(name), float: len(name) + 0.5, bool: True}[annotation]


def model_tree(kind: type[ApiModel]) -> dict[str, Any]:
    """Field -> None, or the fields of the model that it holds."""
    return {name: _inside(field.annotation) for name, field in kind.model_fields.items()}


def _inside(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        return model_tree(annotation)
    return next((found for one in typing.get_args(annotation) if (found := _inside(one))), None)


def proto_tree(message: Descriptor) -> dict[str, Any]:
    """The same of a protobuf message."""
    found = {}
    for field in message.fields:
        inside = field.message_type
        if inside is not None and inside.GetOptions().map_entry:
            inside = inside.fields_by_name["value"].message_type
        found[field.name] = None if inside is None else proto_tree(inside)
    return found


def test_model_and_message_have_the_same_fields() -> None:
    assert model_tree(RunStatus) == proto_tree(pb.RunStatus.DESCRIPTOR)


def test_a_status_with_every_field_filled_survives_the_way_over_grpc() -> None:
    status = filled(RunStatus, "status")
    data = status_to_proto(status).SerializeToString()
    assert status_from_proto(pb.GetStatusResponse.FromString(data)) == status


def test_none_round_trips_through_the_status_message() -> None:
    status = RunStatus.model_validate(status_json(eval=[{"version": 3, "accuracy": None}], replicas=[{}]))
    assert status_from_proto(status_to_proto(status)) == status


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
