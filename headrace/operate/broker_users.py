"""The broker's users: an ACL file for the server, and for each role a file with the URL that it connects by."""

import os
import secrets
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from headrace.wire.contracts.ids import check_run_id
from headrace.wire.errors import ConfigError
from headrace.wire.rundir import atomic
from headrace.wire.streams.redis import GRANTS, acl_file

ACL_FILE = "users.acl"
_BYTES = 24


def write_users(folder: Path, url: str, run_id: str) -> None:
    """Writes `users.acl` and `ROLE.url` for each role; passwords of files that are there are kept, and other users too.

    `url`: that of the server, without a user. Raises ConfigError for another one.
    """
    parts = urlsplit(url)
    if parts.scheme.partition("+")[0] not in ("redis", "rediss") or not parts.hostname or "@" in parts.netloc:
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        raise ConfigError(f"--url {shown}: redis://HOST:PORT/0 or rediss://..., without user and password")
    try:
        check_run_id(run_id)
    except ValueError as error:
        raise ConfigError(f"--run-id: {error}") from None
    passwords = {role: _password(folder / f"{role}.url") or secrets.token_hex(_BYTES) for role in GRANTS}
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for role, password in passwords.items():
        own = parts._replace(netloc=f"{role}:{quote(password, safe='')}@{parts.netloc}")
        _write(folder / f"{role}.url", urlunsplit(own) + "\n")
    _write(folder / ACL_FILE, acl_file(passwords, run_id) + _others(folder / ACL_FILE))


def _others(path: Path) -> str:
    """The lines of an ACL file with users that are not the run's, such as an administrator or Sentinels."""
    own = {"default", *GRANTS}
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return "".join(f"{line}\n" for line in lines if line.strip() and line.split()[1:2] not in [[name] for name in own])


def _password(path: Path) -> str:
    """The password in a URL file; empty without one."""
    if not path.is_file():
        return ""
    return unquote(urlsplit(path.read_text(encoding="utf-8").strip()).password or "")


def _write(path: Path, text: str) -> None:
    with (
        atomic.replaced_file(path, durable=True, needed=len(text)) as aside,
        open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file,
    ):
        file.write(text)
