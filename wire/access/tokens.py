"""Tokens of a run's roles: a folder with `ROLE`, the token, and `accepted.json`, the SHA-256 digests that are accepted.

A service reads its own token and the digests, no other token: what it could tell of the others opens nothing.
"""

import hashlib
import hmac
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from headrace.wire.access.roles import Role
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.atomic import move

ACCEPTED = "accepted.json"
TOKEN_BYTES = 32
_DIGESTS = TypeAdapter(dict[Role, tuple[str, ...]])


@dataclass(frozen=True, slots=True)
class Access:
    """The token of one process, and the digests of those that it accepts."""

    token: str
    accepted: Mapping[Role, tuple[str, ...]]
    """SHA-256, in hex, of the tokens of each role."""

    def roles_of(self, token: str) -> frozenset[Role]:
        """The roles of a token; none for one that is not accepted. Takes as long for either."""
        digest = digest_of(token)
        pairs = [(role, known) for role, digests in self.accepted.items() for known in digests]
        same = [hmac.compare_digest(known, digest) for _, known in pairs]
        return frozenset(role for (role, _), equal in zip(pairs, same, strict=True) if equal)


def digest_of(token: str) -> str:
    """SHA-256 of a token, in hex."""
    return hashlib.sha256(token.encode()).hexdigest()


def make_tokens(folder: Path) -> None:
    """Makes the tokens of all roles, unless they are there: the folder appears whole, 0700, its files 0600.

    Raises ConfigError where no folder can be made.
    """
    if (folder / ACCEPTED).is_file():
        return
    made = folder.with_name(f".{folder.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        made.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise ConfigError(
            f"{folder}: no tokens can be made ({error.strerror}): `headrace prepare` makes them"
        ) from error
    try:
        tokens = {role: secrets.token_hex(TOKEN_BYTES) for role in Role}
        for role, token in tokens.items():
            _write(made / role, token)
        _write(made / ACCEPTED, json.dumps({role: [digest_of(token)] for role, token in tokens.items()}))
        move(made, folder, durable=False)
    except OSError:
        # Another process of the run was faster: a folder that is not empty is not replaced.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def read_access(folder: Path, role: Role) -> Access:
    """Reads a role's token and the digests. Raises ConfigError for a folder that has not both."""
    try:
        token = (folder / role).read_text(encoding="ascii").strip()
        digests = _DIGESTS.validate_json((folder / ACCEPTED).read_bytes())
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else f"{ACCEPTED} holds no digests by role"
        raise ConfigError(
            f"{folder}: no tokens for {role} ({text}): `headrace train` and `headrace prepare` make them in "
            "RUN/run/tokens; HEADRACE_TOKENS names another folder"
        ) from error
    if not token:
        raise ConfigError(f"{folder / role} is empty: it must hold the token of {role}")
    return Access(token, digests)


def _write(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
