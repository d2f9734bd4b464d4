"""A service reads the certificate of its role and its key, and refuses files that cannot be loaded."""

import shutil
from pathlib import Path

import pytest
from cryptography import x509

from headrace.wire.access.certificates import name_of, read_certificates, roles_named
from headrace.wire.access.roles import Role
from headrace.wire.errors import ConfigError
from tests.authority import certificates


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("tls") / "certs")


def ends(chain: bytes) -> float:
    return x509.load_pem_x509_certificate(chain).not_valid_after_utc.timestamp()


def refused(folder: Path, role: Role, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read_certificates(folder, role)
    assert str(folder) in str(caught.value) and "HEADRACE_TLS" in str(caught.value)


def test_each_role_has_a_certificate_of_its_own_that_names_it(folder: Path) -> None:
    found = {role: read_certificates(folder, role) for role in Role}
    assert len({one.chain for one in found.values()}) == len(Role)
    assert all(one.expires == ends(one.chain) for one in found.values())
    assert roles_named([b"trainer.headrace.internal", b"10.0.0.4", b"rollout.example.com"]) == {Role.TRAINER}
    assert roles_named([name_of(role) for role in Role]) == set(Role) and not roles_named([b"*.headrace.internal"])


def test_a_secret_of_cert_manager_is_read_too(folder: Path, tmp_path: Path) -> None:
    for given, name in (("ca.pem", "ca.crt"), ("reward.pem", "tls.crt"), ("reward-key.pem", "tls.key")):
        shutil.copy(folder / given, tmp_path / name)
    assert read_certificates(tmp_path, Role.REWARD) == read_certificates(folder, Role.REWARD)


def test_unloadable_certificate_files_are_rejected_by_name(folder: Path, tmp_path: Path) -> None:
    refused(tmp_path / "none", Role.TRAINER, "ca.pem: No such file")
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    shutil.copy(folder / "rollout.pem", damaged / "trainer.pem")
    refused(damaged, Role.TRAINER, "trainer-key.pem is not the key of trainer.pem")
    (damaged / "trainer-key.pem").write_text("no key")
    refused(damaged, Role.TRAINER, "trainer.pem, trainer-key.pem or ca.pem cannot be used")
    (damaged / "ca.pem").write_text("no certificate")
    refused(damaged, Role.REWARD, "reward.pem, reward-key.pem or ca.pem cannot be used")
