"""What rank 0 tells the other ranks of the trainer to do, in order, over the store of their rendezvous.

A rank waits here between two steps for as long as rank 0 lives: the system ends a child with its parent.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store

_LOOK = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One thing that every rank does now."""

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    """JSON values."""
    payloads: tuple[bytes, ...] = ()


class Commands:
    """One end of the channel."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._number = 0

    def tell(self, name: str, payloads: Sequence[bytes] = (), **values: Any) -> None:
        """By rank 0, before it does the same itself."""
        if self._number:
            # Every rank has read the command before: its collectives have ended with all of them.
            self._store.delete_key(self._key(self._number - 1))
        head = json.dumps({"name": name, "values": values, "sizes": [len(payload) for payload in payloads]}).encode()
        whole = b"".join([len(head).to_bytes(4, "little"), head, *payloads])
        self._store.set(self._key(self._number), whole)  # type: ignore[arg-type]
        self._number += 1

    def next(self) -> Command:
        """By the other ranks: the next command."""
        key = self._key(self._number)
        while not self._came(key):
            pass
        data = bytes(self._store.get(key))
        self._number += 1
        end = 4 + int.from_bytes(data[:4], "little")
        head = json.loads(data[4:end])
        payloads = []
        for size in head["sizes"]:
            payloads.append(data[end : end + size])
            end += size
        return Command(name=head["name"], values=head["values"], payloads=tuple(payloads))

    def _came(self, key: str) -> bool:
        try:
            self._store.wait([key], _LOOK)
        except RuntimeError as error:
            # Only a wait that ended in time may be begun again: a store that is gone would be asked without a pause.
            if "timeout" not in str(error).lower():
                raise
            return False
        return True

    @staticmethod
    def _key(number: int) -> str:
        return f"command/{number}"
