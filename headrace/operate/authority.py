"""A development authority: its certificate, and one for each role of a run, in the folder that HEADRACE_TLS names.

Needs the extra `tls`: nothing imports this module before it is asked for.
"""

import datetime
import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headrace.wire.access.certificates import AUTHORITY, DOMAIN, name_of
from headrace.wire.access.roles import Role
from headrace.wire.errors import ConfigError
from headrace.wire.rundir import atomic

Signer: TypeAlias = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]
"""A certificate and its key."""

BROKER = "broker"
"""Name of the certificate that a Redis or Valkey server shows; it has to name the server's host too."""
AUTHORITY_KEY = "ca-key.pem"
"""Signs certificates of every role: it stays with the operator, no service needs it."""
_SKEW = datetime.timedelta(hours=25)
"""A new certificate is valid since then: clocks of machines differ, by an hour where one takes local time for UTC."""


def make_authority(folder: Path, *, hosts: Sequence[str], days: int) -> None:
    """Makes the authority and a certificate for each role and the broker, valid for `days`, the authority ten times.

    `hosts`: names and addresses that a certificate names beside its role, for tools that check a server's host. Raises
    ConfigError for a folder that is not empty, and for an invalid host.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} is not empty: nothing is overwritten; name another folder, or renew the certificates in it "
            "(headrace certs rotate --tls)"
        )
    made = _authority(days * 10)
    signed = _sign_all(made, hosts, days)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic.write_bytes(folder / AUTHORITY, _pem(made[0]), durable=True, mode=0o644)
    atomic.write_bytes(folder / AUTHORITY_KEY, _key_pem(made[1]), durable=True, mode=0o600)
    _write_all(folder, signed)


def keep_authority(folder: Path, *, hosts: Sequence[str], days: int) -> None:
    """Makes the folder, whole, unless it is there; renews its certificates once one has a third of `days` left or less.

    Arguments as of `make_authority`. Raises ConfigError.
    """
    if not folder.is_dir():
        with atomic.replaced_folder(folder, durable=True) as aside:
            aside.chmod(0o700)
            make_authority(aside, hosts=hosts, days=days)
        return
    third = datetime.timedelta(days=days) / 3
    if _first_expiry(folder) <= datetime.datetime.now(datetime.UTC) + third:
        renew(folder, hosts=hosts, days=days)


def _first_expiry(folder: Path) -> datetime.datetime:
    """When the first certificate of a role or the broker runs out: long ago, if one is missing or damaged."""
    try:
        found = [x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes()) for name in (*Role, BROKER)]
    except (OSError, ValueError):
        return datetime.datetime.min.replace(tzinfo=datetime.UTC)
    return min(one.not_valid_after_utc for one in found)


def renew(folder: Path, *, hosts: Sequence[str], days: int) -> None:
    """Replaces the certificate and the key of each role; the old ones stay valid until they expire.

    `hosts`: none = those of the old certificates. Raises ConfigError for a folder without an authority and its key.
    """
    authority = _read_authority(folder)
    _write_all(folder, _sign_all(authority, hosts or _hosts_in(folder / f"{Role.ORCHESTRATOR}.pem"), days))


def _hosts_in(path: Path) -> list[str]:
    """What a certificate names beside its role."""
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise ConfigError(f"{path}: its names cannot be read ({error}); give them with --host") from error
    values = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    return [value for value in values if value != name_of(Role.ORCHESTRATOR)]


def _sign_all(authority: Signer, hosts: Sequence[str], days: int) -> dict[str, Signer]:
    return {name: _signed(name, authority, hosts, days) for name in (*Role, BROKER)}


def _write_all(folder: Path, signed: Mapping[str, Signer]) -> None:
    """A service that reads between the two files keeps what it has: the key does not match the certificate."""
    for name, (certificate, key) in signed.items():
        atomic.write_bytes(folder / f"{name}-key.pem", _key_pem(key), durable=True, mode=0o600)
        atomic.write_bytes(folder / f"{name}.pem", _pem(certificate), durable=True, mode=0o644)


def _read_authority(folder: Path) -> Signer:
    try:
        key = serialization.load_pem_private_key((folder / AUTHORITY_KEY).read_bytes(), password=None)
        certificate = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}; `headrace certs init` makes an authority. Certificates of another "
            "one are renewed by it"
        ) from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{folder / AUTHORITY_KEY}: {error}; it must be a PEM key without a password") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        raise ConfigError(f"{folder / AUTHORITY_KEY} is not the key of {AUTHORITY}")
    return certificate, key


def _authority(days: int) -> Signer:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Headrace development authority")])
    usage = dict.fromkeys(_USAGE, False) | {"key_cert_sign": True, "crl_sign": True}
    builder = _dated(x509.CertificateBuilder(), days).subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(x509.KeyUsage(**usage), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return builder.sign(key, hashes.SHA256()), key


def _signed(name: str, authority: Signer, hosts: Sequence[str], days: int) -> Signer:
    issuer, issuer_key = authority
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName(f"{name}.{DOMAIN}"), *(_general_name(host) for host in hosts)]
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    usage = dict.fromkeys(_USAGE, False) | {"digital_signature": True}
    builder = _dated(x509.CertificateBuilder(), days).issuer_name(issuer.subject).public_key(key.public_key())
    builder = builder.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.KeyUsage(**usage), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
    )
    return builder.sign(issuer_key, hashes.SHA256()), key


_USAGE = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


def _dated(builder: x509.CertificateBuilder, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    dated = builder.serial_number(x509.random_serial_number()).not_valid_before(now - _SKEW)
    return dated.not_valid_after(now + datetime.timedelta(days=days))


def _general_name(host: str) -> x509.GeneralName:
    if host.endswith(f".{DOMAIN}"):
        raise ConfigError(f"--host {host!r}: such a name is that of a role, and each certificate has its own")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise ConfigError(f"--host {host!r} is neither a DNS name nor an address: {error}") from error


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    kind, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, kind, plain)
