"""Tokens of a run's roles: a folder with `ROLE`, the token, and `accepted.json`, the SHA-256 digests that are accepted.

A service reads its own token and the digests, no other token: what it could disclose of the others opens nothing. Local
processes share one folder; a deployment gives each service a folder with its own token alone (HEADRACE_TOKENS).
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
from headrace.wire.rundir.atomic import move, replaced_file

ACCEPTED = "accepted.json"
TOKEN_BYTES = 32
_SHORTEST = 16
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


def read_token(path: Path, key: str = "orchestrator.operator_token_file") -> str:
    """The token in a file that a user gave as `key`; empty if none is given (`.`). Raises ConfigError."""
    if path == Path():
        return ""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key} {path} cannot be read: {error}") from None
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{key} {path}: a token has {_SHORTEST} or more ASCII letters and digits, in one line")
    return token


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


def divide_tokens(folders: Mapping[Role, Path]) -> None:
    """Makes the missing token of each role in its folder, and writes the digests of all roles to every folder.

    The folders exist; roles may share one. A token is 0400, digests are 0444. A token that is there is kept. Raises
    OSError, and ConfigError for an empty token.
    """
    for role, folder in folders.items():
        if not (folder / role).exists():
            _write_aside(folder / role, secrets.token_hex(TOKEN_BYTES), 0o400)
    tokens = {role: (folder / role).read_text(encoding="ascii").strip() for role, folder in folders.items()}
    for role, token in tokens.items():
        if not token:
            raise ConfigError(f"{folders[role] / role} is empty: remove it, and a token is made")
    digests = json.dumps({role: [digest_of(token)] for role, token in tokens.items()})
    for folder in set(folders.values()):
        _write_aside(folder / ACCEPTED, digests, 0o444)


def remove_tokens(folder: Path) -> None:
    """Removes the tokens of all roles: those of a run whose services have got tokens elsewhere. Raises ConfigError."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(
            f"{folder}: tokens that no service uses any more cannot be removed ({error.strerror}): remove the folder"
        ) from error


def read_access(folder: Path, role: Role) -> Access:
    """Reads a role's token and the digests. Raises ConfigError for a folder that has not both."""
    try:
        token = (folder / role).read_text(encoding="ascii").strip()
        digests = _DIGESTS.validate_json((folder / ACCEPTED).read_bytes())
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else f"{ACCEPTED} holds no digests by role"
        raise ConfigError(
            f"{folder}: no tokens for {role} ({text}): `headrace train` and `headrace prepare` make them in "
            "RUN/run/tokens; HEADRACE_TOKENS names another folder, which the deployment fills"
        ) from error
    if not token:
        raise ConfigError(
            f"{folder / role} is empty: it must hold the token of {role} (Kubernetes: deploy/kubernetes/secrets.sh)"
        )
    return Access(token, digests)


def token_of(folder: Path, role: Role) -> str:
    """The token of a role, for a caller that may do without: empty where it cannot be read."""
    try:
        return (folder / role).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _write(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)


def _write_aside(path: Path, text: str, mode: int) -> None:
    """Whole or not at all."""
    with replaced_file(path, durable=False) as aside:
        _write(aside, text)
        aside.chmod(mode)
