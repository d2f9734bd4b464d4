"""Commands of rank 0 to the other ranks of the trainer, in order, over the store of their rendezvous.

A rank waits here between two steps for as long as rank 0 lives, and no longer: a store that is gone raises. On one
machine the system also ends a child with its parent; on several, `RankHeartbeat` ends a process that loses node 0,
whether that is dead or frozen.

That store has no password, and on several machines it stays open: rank 0 signs each command with the trainer's token,
and the ranks obey no other. The signature covers the command's number and a random word of each rank: a command copied
from another place or life is refused.
"""

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch._C._distributed_c10d import Store
from typing_extensions import TypedDict

from headrace.wire.errors import ContractError, WaitTimeoutError

_LOOK = timedelta(seconds=10)
_CHUNK = 4 * 1024 * 1024
"""The store refuses values of more than 8 MiB."""
_READ_S = 600.0
_PAUSE_S = 0.005


class _Signed(TypedDict):
    head: str
    signatures: list[str]


_SIGNED = TypeAdapter(_Signed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One action that every rank performs now."""

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    """JSON values."""
    payloads: tuple[bytes, ...] = ()


class Commands:
    """One end of the channel."""

    def __init__(self, store: Store, ranks: int, *, rank: int, token: str) -> None:
        """`token` signs, and is the same on all ranks."""
        self._store = store
        self._followers = ranks - 1
        self._token = token.encode()
        self._number = 0
        self._parts = 0
        self._words: tuple[bytes, ...] = ()
        """On rank 0: the random words of the other ranks, in their order, once they are known."""
        self._word = secrets.token_hex(16).encode() if rank else b""
        if rank:
            store.set(_word_key(rank), self._word)  # type: ignore[arg-type]

    def send(self, name: str, payloads: Sequence[bytes] = (), **values: object) -> None:
        """Sends a command, on rank 0, before it acts itself.

        Raises WaitTimeoutError if the one before was never read.
        """
        if self._number:
            self._forget(self._number - 1)
        else:
            self._words = tuple(self._word_of(rank) for rank in range(1, self._followers + 1))
        whole = b"".join(payloads)
        parts = [whole[start : start + _CHUNK] for start in range(0, len(whole), _CHUNK)]
        for number, part in enumerate(parts):
            self._store.set(self._key(self._number, number), part)  # type: ignore[arg-type]
        sizes, digest = [len(payload) for payload in payloads], hashlib.sha256(whole).hexdigest()
        head = json.dumps({"name": name, "values": values, "sizes": sizes, "parts": len(parts), "payloads": digest})
        signatures = [self._signature(word, head) for word in self._words]
        # Last: a rank that sees it finds all parts.
        self._store.set(self._key(self._number), json.dumps({"head": head, "signatures": signatures}))
        self._number, self._parts = self._number + 1, len(parts)

    def next(self) -> Command:
        """On the other ranks: waits for the next command and returns it."""
        while not self._came(self._key(self._number)):
            pass
        head = self._head()
        whole = b"".join(bytes(self._store.get(self._key(self._number, part))) for part in range(head["parts"]))
        if hashlib.sha256(whole).hexdigest() != head["payloads"]:
            raise self._not_signed()
        self._store.add(self._key(self._number, "read"), 1)
        self._number += 1
        payloads, end = [], 0
        for size in head["sizes"]:
            payloads.append(whole[end : end + size])
            end += size
        return Command(name=head["name"], values=head["values"], payloads=tuple(payloads))

    def _signature(self, word: bytes, head: str) -> str:
        text = b" ".join((str(self._number).encode(), word, head.encode()))
        return hmac.new(self._token, text, "sha256").hexdigest()

    def _head(self) -> dict[str, Any]:
        """The next command without its payloads; nothing of it is used before its signature is checked."""
        try:
            signed = _SIGNED.validate_json(bytes(self._store.get(self._key(self._number))))
        except ValidationError:
            raise self._not_signed() from None
        wanted = self._signature(self._word, signed["head"]).encode()
        if not any(hmac.compare_digest(wanted, one.encode()) for one in signed["signatures"]):
            raise self._not_signed()
        head: dict[str, Any] = json.loads(signed["head"])
        return head

    def _not_signed(self) -> ContractError:
        return ContractError("not_signed", f"command {self._number} of rank 0 lacks the signature of this run")

    def _word_of(self, rank: int) -> bytes:
        """Waits for the random word of a rank, which has joined and writes it next."""
        end = time.monotonic() + _READ_S
        while not self._came(_word_key(rank)):
            if time.monotonic() > end:
                raise WaitTimeoutError(f"rank {rank} to wait for commands", _READ_S)
        return bytes(self._store.get(_word_key(rank)))

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


def _word_key(rank: int) -> str:
    return f"command/word/{rank}"
