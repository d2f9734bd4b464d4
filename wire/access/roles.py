"""Roles, and the methods that each may call: read from the options of the methods in proto/wire/v1."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from headrace.wire.v1 import access_pb2, orchestrator_pb2, reward_pb2, rollout_pb2, trainer_pb2

_FILES = (orchestrator_pb2, reward_pb2, rollout_pb2, trainer_pb2)
_OF_EVERY_ROLE = (
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    *(f"grpc.health.v1.Health/{name}" for name in ("Check", "List", "Watch")),
)
_PREFIX = "ROLE_"


class Role(StrEnum):
    """What a caller is: a service of the run, or the tool of a person."""

    TRAINER = "trainer"
    ROLLOUT = "rollout"
    REWARD = "reward"
    ENVIRONMENT = "environment"
    ORCHESTRATOR = "orchestrator"
    OPERATOR = "operator"
    VIEWER = "viewer"
    ANNOTATOR = "annotator"


def _read() -> dict[str, frozenset[Role]]:
    found = {f"/{method}": frozenset(Role) for method in _OF_EVERY_ROLE}
    for file in _FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                numbers = method.GetOptions().Extensions[access_pb2.roles]
                names = [access_pb2.Role.Name(number).removeprefix(_PREFIX).lower() for number in numbers]
                found[f"/{service.full_name}/{method.name}"] = frozenset(Role(name) for name in names)
    return found


ALLOWED: Mapping[str, frozenset[Role]] = MappingProxyType(_read())
"""The roles that may call each method, by its full name; one that is not listed is refused to all."""
