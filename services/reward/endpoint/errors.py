"""What can go wrong with an endpoint, as a closed set."""

from typing import Literal

from headrace.wire.errors import TransientError

Kind = Literal["down", "busy", "refused", "bad_answer"]
"""`down`: no request can be served: no connection, no such name, 401, 404, a redirect; 403, 405
and 451 while no request has been served.
`busy`: 429, 5xx, no answer in time, connection lost before the answer; after all retries.
`refused`: another 4xx: this request is not taken, others may be; 403, 405 and 451 where others have been.
`bad_answer`: not JSON, truncated, compressed, too large."""


class EndpointError(TransientError):
    """A request that was not answered as it should be. `kind` is used as a metric label."""

    def __init__(
        self, kind: Kind, message: str, *, may_retry: bool = False, after_s: float = 0.0, is_ban: bool = False
    ) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message = message
        self.may_retry = may_retry
        """Another try could have another end; of an error that `post` raised, none was left."""
        self.after_s = after_s
        """The server asked to be left alone for so long."""
        self.is_ban = is_ban
        """The server refused it, for its content or for its sender."""

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.kind, self.message)
