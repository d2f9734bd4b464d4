"""The status as the message of gRPC `GetStatus`."""

from google.protobuf.json_format import ParseDict

from headrace.wire.api.status import RunStatus
from headrace.wire.v1 import orchestrator_pb2 as pb


def status_to_proto(status: RunStatus) -> pb.GetStatusResponse:
    """The model as the message: None and absent fields are unset there."""
    message = pb.RunStatus()
    ParseDict(status.model_dump(exclude_none=True), message)
    return pb.GetStatusResponse(status=message)
