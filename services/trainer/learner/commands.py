"""Commands of rank 0 to the other ranks of the trainer, in order, over the store of their rendezvous.

A rank waits here between two steps for as long as rank 0 lives, and no longer: a store that is gone raises. On one
machine the system also ends a child with its parent; on several, `RankHeartbeat` ends a process that loses node 0,
whether that is dead or frozen.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store

from headrace.wire.errors import WaitTimeoutError

_LOOK = timedelta(seconds=10)
_CHUNK = 4 * 1024 * 1024
"""The store refuses values of more than 8 MiB."""
_READ_S = 600.0
_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One action that every rank performs now."""

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    """JSON values."""
    payloads: tuple[bytes, ...] = ()


class Commands:
    """One end of the channel."""

    def __init__(self, store: Store, ranks: int) -> None:
        self._store = store
        self._followers = ranks - 1
        self._number = 0
        self._parts = 0

    def send(self, name: str, payloads: Sequence[bytes] = (), **values: object) -> None:
        """Sends a command, on rank 0, before it acts itself.

        Raises WaitTimeoutError if the one before was never read.
        """
        if self._number:
            self._forget(self._number - 1)
        whole = b"".join(payloads)
        parts = [whole[start : start + _CHUNK] for start in range(0, len(whole), _CHUNK)]
        for number, part in enumerate(parts):
            self._store.set(self._key(self._number, number), part)  # type: ignore[arg-type]
        head = {"name": name, "values": values, "sizes": [len(payload) for payload in payloads], "parts": len(parts)}
        # Last: a rank that sees it finds all parts.
        self._store.set(self._key(self._number), json.dumps(head))
        self._number, self._parts = self._number + 1, len(parts)

    def next(self) -> Command:
        """On the other ranks: waits for the next command and returns it."""
        while not self._came(self._key(self._number)):
            pass
        head = json.loads(self._store.get(self._key(self._number)))
        whole = b"".join(bytes(self._store.get(self._key(self._number, part))) for part in range(head["parts"]))
        self._store.add(self._key(self._number, "read"), 1)
        self._number += 1
        payloads, end = [], 0
        for size in head["sizes"]:
            payloads.append(whole[end : end + size])
            end += size
        return Command(name=head["name"], values=head["values"], payloads=tuple(payloads))

    def _forget(self, number: int) -> None:
        """Deletes a command once all ranks have read it: a rank may still be busy with the one before."""
        end = time.monotonic() + _READ_S
        while self._store.add(self._key(number, "read"), 0) < self._followers:
            if time.monotonic() > end:
                raise WaitTimeoutError(f"all {self._followers} ranks to read command {number}", _READ_S)
            time.sleep(_PAUSE_S)
        for part in (*range(self._parts), "read"):
            self._store.delete_key(self._key(number, part))
        self._store.delete_key(self._key(number))

    def _came(self, key: str) -> bool:
        try:
            self._store.wait([key], _LOOK)
        except RuntimeError as error:
            # Only a wait that timed out is retried: a store that is gone would be polled without a pause.
            if "timeout" not in str(error).lower():
                raise
            return False
        return True

    @staticmethod
    def _key(number: int, part: int | str = "head") -> str:
        return f"command/{number}/{part}"
