"""Certificates for tests: those of `headrace certs init`, and one that has expired."""

import datetime
import shutil
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from headrace.operate.authority import AUTHORITY_KEY, make_authority
from headrace.wire.access.certificates import AUTHORITY, name_of
from headrace.wire.access.roles import Role


def certificates(folder: Path) -> Path:
    """A new authority with a certificate for each role."""
    make_authority(folder, hosts=("127.0.0.1",), days=1)
    return folder


def expired(folder: Path, role: Role, into: Path) -> Path:
    """A copy of the folder in which the certificate of a role ran out an hour ago."""
    shutil.copytree(folder, into)
    issuer = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
    issuer_key = serialization.load_pem_private_key((folder / AUTHORITY_KEY).read_bytes(), password=None)
    key = serialization.load_pem_private_key((folder / f"{role}-key.pem").read_bytes(), password=None)
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().issuer_name(issuer.subject).public_key(key.public_key())
    builder = builder.subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, role)]))
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=2))
    builder = builder.not_valid_after(now - datetime.timedelta(hours=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name_of(role))]), critical=False)
    made = builder.sign(issuer_key, hashes.SHA256())
    (into / f"{role}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return into
