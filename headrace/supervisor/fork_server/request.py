"""What client and server of the fork server exchange: one packet a request, one a reply."""

import json
from dataclasses import asdict, dataclass
from typing import Self

LONGEST = 1 << 17
"""Bytes of the longest packet: it must fit into a socket's buffer, which Linux makes 200 KiB."""


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """One process to fork; its stdout and stderr travel beside it as file descriptors."""

    argv: tuple[str, ...]
    """Command line of the same process without the fork server: interpreter, `-P`, `-m`, module, arguments."""
    env: dict[str, str]
    """Whole environment of the process."""

    def encode(self) -> bytes:
        """As one packet."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, packet: bytes) -> Self:
        """Reads `encode`'s packet."""
        found = json.loads(packet)
        return cls(tuple(found["argv"]), found["env"])


def module_of(argv: tuple[str, ...]) -> str:
    """The module that a command line of `python -P -m MODULE` runs; empty for any other command."""
    return argv[3] if len(argv) > 3 and argv[1:3] == ("-P", "-m") else ""
