"""`headrace certs`: what it makes, what it refuses, what it says."""

import datetime
import sys
from pathlib import Path

import pytest

from headrace.wire.access.certificates import read_certificates
from headrace.wire.access.roles import Role
from tests.verbs import result, said


def test_an_authority_is_made_once_and_its_keys_are_the_owners(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    assert "for each role and the broker, valid for 30 days" in said("certs", "init", folder, "--days", "30")
    assert len({read_certificates(folder, role).key for role in Role}) == len(Role)
    keys = [path for path in folder.iterdir() if path.name.endswith("-key.pem")]
    assert len(keys) == len(Role) + 2 and {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert f"{folder} is not empty: nothing is overwritten" in said("certs", "init", folder, status=2)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_new_certificates_are_valid_on_a_machine_with_a_clock_one_hour_slow(tmp_path: Path) -> None:
    from cryptography import x509

    folder = tmp_path / "certs"
    said("certs", "init", folder)
    made = [x509.load_pem_x509_certificate(path.read_bytes()) for path in (folder / "ca.pem", folder / "reward.pem")]
    behind = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    assert [one.not_valid_before_utc < behind for one in made] == [True, True]


def test_a_renewal_keeps_authority_and_hosts(tmp_path: Path) -> None:
    from cryptography import x509

    folder = tmp_path / "certs"
    result("certs", "init", folder, "--host", "train.example", "--host", "10.0.0.4")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert result("certs", "rotate", "--tls", folder)["done"] == ["certificates"]
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name for name in before if before[name] == after[name]} == {"ca.pem", "ca-key.pem"}
    shown = x509.load_pem_x509_certificate(after["reward.pem"])
    names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one.value) for one in names] == ["reward.headrace.internal", "train.example", "10.0.0.4"]
    (folder / "ca-key.pem").unlink()
    assert "ca-key.pem: No such file" in said("certs", "rotate", "--tls", folder, status=2)


def test_bad_input_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "certs"
    assert "'ü' is neither a DNS name nor an address" in said("certs", "init", folder, "--host", "ü", status=2)
    told = said("certs", "init", folder, "--host", "trainer.headrace.internal", status=2)
    assert "such a name is that of a role" in told
    assert "name the run whose tokens are rotated" in said("certs", "rotate", status=2)
    assert "no tokens for trainer" in said("certs", "rotate", tmp_path / "none", status=2)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert "pip install 'headrace[tls]'" in said("certs", "init", folder, status=2)
    assert not folder.exists()
