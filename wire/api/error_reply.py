"""The answer to a refused request, of every route of every service."""

import json
from typing import Literal

from headrace.wire.api.model import ApiModel

NO_ROUTE = "there is no route"
"""How the refusal of a path begins that no route serves, unlike that of a thing which is not there."""
NEEDS_TOKEN = "this needs a token"
"""How the refusal of a request begins whose token is not accepted, or that has none."""
NOT_FOR = ", not for "
"""Stands in the refusal of a token of another role, between the roles that a route is for and those of the token."""


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
    param: str | None
    """The field that is not honoured."""
    code: str | None
    """One word for programs."""


class ChatErrorReply(ApiModel):
    """A refusal below `/v1/`, where OpenAI's clients ask: in OpenAI's format."""

    error: ChatError

    @staticmethod
    def of(status: int, message: str, code: str | None = None, param: str | None = None) -> "ChatErrorReply":
        """A refusal with an HTTP status."""
        kind: Literal["invalid_request_error", "server_error"] = "invalid_request_error"
        if status >= 429:
            kind = "server_error"
        return ChatErrorReply(error=ChatError(message=message, type=kind, param=param, code=code))


def words_of(body: str) -> str:
    """The reason in the body of a refusal, also of an older or another service: FastAPI's own `detail`, or any text."""
    try:
        found: object = json.loads(body)
    except ValueError:
        return body.strip()[:300]
    said = found.get("error", found.get("detail", found)) if isinstance(found, dict) else found
    return str(said.get("message", said) if isinstance(said, dict) else said)


def wants_token(words: str) -> bool:
    """Whether the reason of a refusal is that another token is needed; a guard and a proxy have other reasons too."""
    return words.startswith(NEEDS_TOKEN) or NOT_FOR in words
