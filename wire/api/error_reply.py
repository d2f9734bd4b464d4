"""The answer to a refused request, of every route of every service."""

from typing import Literal

from headrace.wire.api.model import ApiModel

NO_ROUTE = "there is no route"
"""How the refusal of a path begins that no route serves, unlike that of a thing which is not there."""


class ErrorReply(ApiModel):
    """A refusal."""

    error: str
    """What is wrong, and the way out."""


class ChatError(ApiModel):
    """OpenAI's error object."""

    message: str
    """What is wrong, and the way out."""
    type: Literal["invalid_request_error", "server_error"]
    """Whether another request would help, or another time."""
    param: None
    code: str | None
    """One word for programs."""


class ChatErrorReply(ApiModel):
    """A refusal below `/v1/`, where OpenAI's clients ask: in OpenAI's format."""

    error: ChatError

    @staticmethod
    def of(status: int, message: str, code: str | None = None) -> "ChatErrorReply":
        """A refusal with an HTTP status."""
        kind: Literal["invalid_request_error", "server_error"] = "invalid_request_error"
        if status >= 429:
            kind = "server_error"
        return ChatErrorReply(error=ChatError(message=message, type=kind, param=None, code=code))
