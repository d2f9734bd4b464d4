"""The certificates of a deployment over TLS: each service gets the one of its role, from one authority.

Needs the extra `tls`.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from headrace.operate.authority import BROKER, keep_authority
from headrace.wire.access.certificates import AUTHORITY, SECRET
from headrace.wire.access.roles import Role
from headrace.wire.rundir import atomic


def write_role_certificates(
    kept: Path,
    folders: Mapping[Role, Path],
    broker: Path,
    *,
    host: str,
    days: int,
    groups: Mapping[Role, int] = MappingProxyType({}),
) -> None:
    """Makes an authority in `kept`, unless it is there, and writes the certificate of each role into its folder.

    `folders`: role -> where `ca.crt`, `tls.crt` and `tls.key` go; in a folder of several roles `ROLE.pem` and so on.
    `broker`: where those of the broker go, which is reached as `host`; the group of this process reads `ca.crt` there.
    `groups`: of roles whose services are users of their own, the group that reads. Raises ConfigError or OSError.
    """
    keep_authority(kept, hosts=(host, "localhost", "127.0.0.1"), days=days)
    for role, folder in folders.items():
        shared = [one for one, other in folders.items() if other == folder] != [role]
        for name, source in _certificate(kept, role, shared=shared):
            _give(source, folder / name, 0o440 if role in groups else 0o400, groups.get(role, -1))
    for name, source in _certificate(kept, BROKER, shared=False):
        _give(source, broker / name, 0o440 if name == SECRET[0] else 0o400)


def _certificate(certs: Path, name: str, *, shared: bool) -> Iterator[tuple[str, Path]]:
    """Name in the target folder -> file; in a folder of one role the names that a mounted secret has."""
    files = (AUTHORITY, f"{name}.pem", f"{name}-key.pem")
    yield from zip(files if shared else SECRET, (certs / file for file in files), strict=True)


def _give(source: Path, path: Path, mode: int, group: int = -1) -> None:
    """A file that has not changed is left as it is; `group`: -1 = this process's."""
    data = source.read_bytes()
    if path.is_file() and path.read_bytes() == data and path.stat().st_mode & 0o777 == mode:
        return
    with atomic.replaced_file(path, durable=False, needed=len(data)) as aside:
        aside.touch(mode=0o600)
        aside.write_bytes(data)
        os.chown(aside, -1, group)
        aside.chmod(mode)
