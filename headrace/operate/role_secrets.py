"""The secrets of a deployment over TLS: what each service needs of an authority and of the broker's users, and no more.

Needs the extra `tls`.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from headrace.operate.authority import BROKER, keep_authority
from headrace.operate.broker_users import ACL_FILE, write_users
from headrace.wire.access.certificates import AUTHORITY, SECRET
from headrace.wire.access.roles import Role
from headrace.wire.rundir import atomic

ADMIN = "admin"
"""The broker's user with all rights; only the broker's own folder has its password."""
_CA, _CERTIFICATE, _KEY = SECRET


@dataclass(frozen=True, slots=True)
class RoleFolders:
    """Where secrets go, each folder one that its service alone mounts; people's roles may share one."""

    certificates: Mapping[Role, Path]
    """Role -> where its certificate goes: `ca.crt`, `tls.crt`, `tls.key`; of a shared folder `ROLE.pem` and so on."""
    urls: Mapping[Role, Path]
    """Role -> where `url` and `ca.crt` go, for each user of the broker (`GRANTS`)."""
    broker: Path
    """Where the broker's certificate and `users.acl` go; the caller keeps the password of `ADMIN` there."""


def write_role_secrets(
    kept: Path,
    folders: RoleFolders,
    *,
    url: str,
    run_id: str,
    admin: str,
    days: int,
    groups: Mapping[Role, int] = MappingProxyType({}),
) -> None:
    """Makes an authority and the broker's users in `kept`, unless they are there, and gives each role its own.

    `url`: the broker's, without a user. `admin`: the password of the broker's administrator. `groups`: of roles whose
    services are users of their own, the group that reads. Raises ConfigError or OSError.
    """
    certs, users = kept / "certs", kept / "users"
    keep_authority(certs, hosts=(urlsplit(url).hostname or "", "localhost", "127.0.0.1"), days=days)
    write_users(users, url, run_id)
    for role, folder in folders.certificates.items():
        shared = [one for one, other in folders.certificates.items() if other == folder] != [role]
        for name, source in _certificate(certs, role, shared=shared):
            _give(source.read_bytes(), folder / name, groups.get(role))
    for role, folder in folders.urls.items():
        _give((users / f"{role}.url").read_bytes(), folder / "url", groups.get(role))
        _give((certs / AUTHORITY).read_bytes(), folder / _CA, groups.get(role))
    for name, source in _certificate(certs, BROKER, shared=False):
        _give(source.read_bytes(), folders.broker / name, None)
    _give((users / ACL_FILE).read_bytes() + _admin_line(admin), folders.broker / ACL_FILE, None)


def _certificate(certs: Path, name: str, *, shared: bool) -> Iterator[tuple[str, Path]]:
    """Name in the target folder -> file; in a folder of one role the names that a mounted secret has."""
    files = (AUTHORITY, f"{name}.pem", f"{name}-key.pem")
    yield from zip(files if shared else (_CA, _CERTIFICATE, _KEY), (certs / file for file in files), strict=True)


def _admin_line(password: str) -> bytes:
    digest = hashlib.sha256(password.encode()).hexdigest()
    return f"user {ADMIN} on #{digest} ~* &* +@all\n".encode()


def _give(data: bytes, path: Path, group: int | None) -> None:
    """The owner reads it, and a group if one is named; a file that has not changed is left as it is."""
    mode = 0o400 if group is None else 0o440
    if path.is_file() and path.read_bytes() == data and path.stat().st_mode & 0o777 == mode:
        return
    with atomic.replaced_file(path, durable=False, needed=len(data)) as aside:
        aside.touch(mode=0o600)
        aside.write_bytes(data)
        if group is not None:
            os.chown(aside, -1, group)
        aside.chmod(mode)
