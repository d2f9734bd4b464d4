"""Splits what a Redis client sends into whole requests."""


class RequestSplitter:
    """Takes bytes as they come; returns whole requests, where a transaction from MULTI to EXEC is one."""

    def __init__(self) -> None:
        self._rest = b""
        self._transaction: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The requests that these bytes complete."""
        self._rest += data
        found = []
        while (request := self._next()) is not None:
            name = request.split(b"\r\n", 3)[2].upper()
            if name == b"MULTI" or self._transaction:
                self._transaction.append(request)
                if name in (b"EXEC", b"DISCARD"):
                    found.append(b"".join(self._transaction))
                    self._transaction = []
            else:
                found.append(request)
        return found

    def _next(self) -> bytes | None:
        """The next command (`*N`, then N times `$LENGTH` and as many bytes), taken off the rest; None if incomplete."""
        end = self._rest.find(b"\r\n")
        if end < 0:
            return None
        count, place = int(self._rest[1:end]), end + 2
        for _ in range(count):
            end = self._rest.find(b"\r\n", place)
            if end < 0:
                return None
            place = end + 2 + int(self._rest[place + 1 : end]) + 2
            if place > len(self._rest):
                return None
        request, self._rest = self._rest[:place], self._rest[place:]
        return request
