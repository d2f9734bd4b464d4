"""Replaces the tokens of a live run: a new token is accepted first, then used, and the old one then retired.

Each phase may be repeated, and a rotation that was interrupted goes on where it was: until the last phase every
service works with the old token and with the new one.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import ACCEPTED, TOKEN_BYTES, digest_of, read_access
from headrace.wire.errors import ConfigError
from headrace.wire.rundir import atomic

_NEXT = ".next"
"""Suffix of a token that is accepted, and not yet used."""


class RotationPhase(StrEnum):
    """The phases, in their order. Services look at the files every few seconds: between two lies a lease."""

    ACCEPT = "accept"
    """New tokens are made and accepted beside the old ones."""
    USE = "use"
    """Services call with the new tokens."""
    RETIRE = "retire"
    """Old tokens are accepted no more."""


def rotate(folder: Path, phase: RotationPhase) -> None:
    """Carries out one phase. Raises ConfigError for a folder without the tokens of all roles, or out of order."""
    tokens = {role: read_access(folder, role).token for role in Role}
    if phase is RotationPhase.ACCEPT:
        accepted = read_access(folder, Role.OPERATOR).accepted
        digests = {role: [*accepted.get(role, ()), digest_of(_next_token(folder, role))] for role in Role}
        _write_digests(folder, {role: list(dict.fromkeys(of)) for role, of in digests.items()})
    elif phase is RotationPhase.USE:
        for role in Role:
            _use(folder, role)
    else:
        waiting = [role for role in Role if (folder / f"{role}{_NEXT}").exists()]
        if waiting:
            raise ConfigError(f"{folder}: the new token of {waiting[0]} is not used yet: the phase `use` comes first")
        _write_digests(folder, {role: [digest_of(token)] for role, token in tokens.items()})


def _next_token(folder: Path, role: Role) -> str:
    """The token that a role will have: one from an interrupted rotation, or a new one."""
    path = folder / f"{role}{_NEXT}"
    if path.is_file():
        return path.read_text(encoding="ascii")
    token = secrets.token_hex(TOKEN_BYTES)
    atomic.write_text(path, token, durable=True, mode=0o600)
    return token


def _use(folder: Path, role: Role) -> None:
    path = folder / f"{role}{_NEXT}"
    if not path.is_file():
        return  # An earlier try did it.
    if digest_of(path.read_text(encoding="ascii")) not in read_access(folder, role).accepted.get(role, ()):
        raise ConfigError(f"{path}: its token is not accepted yet: the phase `accept` comes first")
    atomic.move(path, folder / role, durable=True)


def _write_digests(folder: Path, accepted: Mapping[Role, Sequence[str]]) -> None:
    atomic.write_text(folder / ACCEPTED, json.dumps(accepted), durable=True, mode=0o600)
