"""The access of this process: named at its start, read when it first serves or calls, and again when it is rotated."""

from collections.abc import Sequence
from pathlib import Path

from headrace.wire.access.certificates import Certificates, files_of, read_certificates
from headrace.wire.access.reread import RereadValue
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import ACCEPTED, Access, make_tokens, read_access
from headrace.wire.telemetry import metrics

_HEADER = "authorization"
_SCHEME = "Bearer "


class ProcessAccess:
    """The tokens and the certificates of a process that has a role."""

    def __init__(self, role: Role, folder: Path, *, makes: bool, tls: Path | None) -> None:
        """`tls`: folder of its certificates; None = its traffic is not encrypted."""
        self.role = role
        self._folder, self._makes = folder, makes
        self._access = RereadValue("tokens", lambda: (folder / role, folder / ACCEPTED), self._read_access)
        self._certificates = None
        if tls is not None:
            self._certificates = RereadValue(
                "certificates", lambda: _paths(tls, role), lambda: _read_certificates(tls, role)
            )

    @property
    def encrypts(self) -> bool:
        """Whether all that it serves and calls goes over mutual TLS."""
        return self._certificates is not None

    def tokens(self) -> Access:
        """Its token and those that it accepts. Raises ConfigError the first time."""
        return self._access.get()

    def certificates(self) -> Certificates | None:
        """Its certificates; None if it does not encrypt. Raises ConfigError the first time."""
        return None if self._certificates is None else self._certificates.get()

    def _read_access(self) -> Access:
        if self._makes:
            make_tokens(self._folder)
        return read_access(self._folder, self.role)


def _paths(tls: Path, role: Role) -> Sequence[Path]:
    files = files_of(tls, role)
    return files.authority, files.chain, files.key


def _read_certificates(tls: Path, role: Role) -> Certificates:
    found = read_certificates(tls, role)
    metrics.CERTIFICATE_EXPIRES.set(found.expires)
    return found


class _Process:
    """The access of this process; none before `use`."""

    access: ProcessAccess | None = None


def use(role: Role, folder: Path, *, makes: bool, tls: Path | None = None) -> None:
    """From here on the process has a role, and its tokens are in `folder`; `makes`: it makes them if they are not.

    `tls`: the folder of its certificates; None = gRPC is not encrypted.
    """
    _Process.access = ProcessAccess(role, folder, makes=makes, tls=tls)


def forget() -> None:
    """The process has no role."""
    _Process.access = None


def current() -> ProcessAccess | None:
    """The process's access; None for a process without a role, such as a test."""
    return _Process.access


def credentials() -> tuple[tuple[str, str], ...]:
    """The metadata of a call that this process makes. Raises ConfigError if its tokens cannot be read."""
    access = current()
    return () if access is None else ((_HEADER, f"{_SCHEME}{access.tokens().token}"),)


def token_in(metadata: "tuple[tuple[str, str | bytes], ...] | None") -> str:
    """The token that a caller gives; empty if it gives none, or several."""
    given = [value for key, value in metadata or () if key == _HEADER]
    if len(given) != 1 or not isinstance(given[0], str) or not given[0].startswith(_SCHEME):
        return ""
    return given[0].removeprefix(_SCHEME)
