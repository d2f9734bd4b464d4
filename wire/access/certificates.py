"""Certificates of a run's roles: a folder with the authority, a role's certificate and its key, as a mounted secret is.

A certificate names its role by the DNS name `ROLE.headrace.internal`, not its machine: replicas and pods come and go
with their addresses. A peer checks that name, the authority and the dates.
"""

import _ssl
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.wire.access.roles import Role
from headrace.wire.errors import ConfigError

_decode = _ssl._test_decode_cert  # type: ignore[attr-defined]  # The one reader of a file's dates in the standard library.
DOMAIN = "headrace.internal"
AUTHORITY = "ca.pem"
SECRET = ("ca.crt", "tls.crt", "tls.key")
"""Names of authority, certificate and key in a secret that cert-manager writes."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The three files of a role, each PEM."""

    authority: Path
    """One certificate or several: any of them may have signed a peer's."""
    chain: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Certificates:
    """What a process shows its peers, and by what it checks theirs; all PEM."""

    authority: bytes
    chain: bytes
    key: bytes
    expires: float
    """Unix time in seconds."""


def name_of(role: Role) -> str:
    """The DNS name by which a certificate names a role."""
    return f"{role}.{DOMAIN}"


def roles_named(names: Iterable[str | bytes]) -> frozenset[Role]:
    """The roles that the alternative names of a certificate name. Pure."""
    given = {name.decode(errors="replace") if isinstance(name, bytes) else name for name in names}
    return frozenset(role for role in Role if name_of(role) in given)


def files_of(folder: Path, role: Role) -> CertificateFiles:
    """The files of a role: `ca.pem`, `ROLE.pem` and `ROLE-key.pem`, or those of cert-manager where they are."""
    if (folder / SECRET[1]).exists():
        return CertificateFiles(*(folder / name for name in SECRET))
    return CertificateFiles(folder / AUTHORITY, folder / f"{role}.pem", folder / f"{role}-key.pem")


def read_certificates(folder: Path, role: Role) -> Certificates:
    """Reads a role's certificates.

    Raises ConfigError for a folder without them, for a file that is not PEM, and for a key of another certificate.
    Dates, names and the authority's signature are for peers to check.
    """
    files = files_of(folder, role)
    try:
        authority, chain, key = _bytes_of(files)
        # An encrypted key would be asked for on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.chain, files.key, password=lambda: "")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(files.authority)
        expires = float(ssl.cert_time_to_seconds(_decode(files.chain)["notAfter"]))
        same = (authority, chain, key) == _bytes_of(files)
    except OSError as error:
        raise ConfigError(f"{folder}: {_problem(error, files)}; {_way_out(role)}") from error
    if not same:
        raise ConfigError(f"{folder}: the certificates of {role} changed while they were read")
    return Certificates(authority, chain, key, expires)


def _bytes_of(files: CertificateFiles) -> tuple[bytes, bytes, bytes]:
    return files.authority.read_bytes(), files.chain.read_bytes(), files.key.read_bytes()


def _way_out(role: Role) -> str:
    return (
        f"HEADRACE_TLS names a folder with {AUTHORITY}, {role}.pem and {role}-key.pem, or {', '.join(SECRET)}; "
        f"the certificate is of {name_of(role)} and for servers and clients (`headrace certs init` makes such ones)"
    )


def _problem(error: OSError, files: CertificateFiles) -> str:
    """`ssl.SSLError` is one of OSError."""
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"{files.key.name} is not the key of {files.chain.name}"
        return f"{files.chain.name}, {files.key.name} or {files.authority.name} cannot be used ({error})"
    return f"{Path(str(error.filename or '')).name}: {error.strerror}"
