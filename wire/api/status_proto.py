"""The status as the message of gRPC `GetStatus`, and back."""

from google.protobuf.json_format import MessageToDict, ParseDict

from headrace.wire.api.status import RunStatus
from headrace.wire.v1 import orchestrator_pb2 as pb


def status_to_proto(status: RunStatus) -> pb.GetStatusResponse:
    """The model as the message: None and absent fields are unset there."""
    message = pb.RunStatus()
    ParseDict(status.model_dump(exclude_none=True), message)
    return pb.GetStatusResponse(status=message)


def status_from_proto(response: pb.GetStatusResponse) -> RunStatus:
    """Inverse of `status_to_proto`, with None for what is unset. Raises ValueError if the message is not whole."""
    fields = MessageToDict(response.status, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    # The mapping omits unset fields; the model requires those without a default.
    fields |= {"publication": fields.get("publication")}
    fields["eval"] = [{"accuracy": None, **one} for one in fields["eval"]]
    fields["replicas"] = [{"waiting_since": None, **one} for one in fields["replicas"]]
    fields["run"] = {"began": None, **fields["run"]}
    return RunStatus.model_validate(fields)
