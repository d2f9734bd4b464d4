"""What each service of a deployment gets of an authority and of the broker's users: its own, and each time the same."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.operate.authority import AUTHORITY_KEY, keep_authority, make_authority
from headrace.operate.role_secrets import ADMIN, RoleFolders, write_role_secrets
from headrace.wire.access.certificates import AUTHORITY, SECRET, read_certificates
from headrace.wire.access.roles import Role
from headrace.wire.errors import ConfigError
from headrace.wire.streams.redis import GRANTS

URL = "rediss://valkey:6379/0?ssl_ca_certs=/run/broker/ca.crt"
PEOPLE = (Role.OPERATOR, Role.VIEWER, Role.ANNOTATOR)


def folders_in(tmp_path: Path) -> RoleFolders:
    """A folder for each service, one for people, one for each user of the broker, and one for the broker."""
    found = RoleFolders(
        certificates={role: tmp_path / "tokens" / ("user" if role in PEOPLE else role) for role in Role},
        urls={role: tmp_path / "urls" / role for role in GRANTS},
        broker=tmp_path / "valkey",
    )
    for folder in {*found.certificates.values(), *found.urls.values(), found.broker}:
        folder.mkdir(parents=True)
    return found


def write(tmp_path: Path, folders: RoleFolders, *, run_id: str = "mine", days: int = 90) -> None:
    write_role_secrets(tmp_path / "vault", folders, url=URL, run_id=run_id, admin="of-the-test", days=days)


def texts(*folders: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def test_each_role_gets_a_certificate_that_peers_take_and_no_key_of_another(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    write(tmp_path, folders)
    for role, folder in folders.certificates.items():
        assert read_certificates(folder, role).authority == (tmp_path / "vault/certs" / AUTHORITY).read_bytes()
        shared = {AUTHORITY, *(f"{one}{part}.pem" for one in PEOPLE for part in ("", "-key"))}
        assert {path.name for path in folder.iterdir()} == (shared if role in PEOPLE else set(SECRET)), role
    keys = [path.read_bytes() for path in (tmp_path / "tokens").rglob("*") if "key" in path.name]
    assert len(set(keys)) == len(keys) == len(Role)
    kept = (tmp_path / "vault/certs" / AUTHORITY_KEY).read_bytes()
    given = texts(tmp_path / "tokens", tmp_path / "urls", tmp_path / "valkey")
    assert kept not in given.values()
    assert {path.stat().st_mode & 0o777 for path in given} == {0o400}


def test_each_user_of_the_broker_gets_its_own_url_and_the_broker_no_password(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    write(tmp_path, folders)
    passwords = set()
    for role, folder in folders.urls.items():
        assert {path.name for path in folder.iterdir()} == {"url", SECRET[0]}
        found = urlsplit((folder / "url").read_text().strip())
        assert (found.username, found.hostname, found.scheme) == (role, "valkey", "rediss")
        passwords.add(found.password or "")
    assert len(passwords) == len(folders.urls)
    acl = (folders.broker / "users.acl").read_text()
    assert not any(password in acl for password in (*passwords, "of-the-test"))
    users = [line.split()[1] for line in acl.splitlines()]
    assert users == ["default", *folders.urls, ADMIN] and "user default off" in acl
    assert "~headrace:{mine}:" in acl and {path.name for path in folders.broker.iterdir()} == {"users.acl", *SECRET}


def test_written_again_nothing_changes_but_the_run_whose_streams_the_users_may_use(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    write(tmp_path, folders)
    before = texts(tmp_path)
    inodes = {path: path.stat().st_ino for path in before if "vault" not in path.parts}
    write(tmp_path, folders)
    assert texts(tmp_path) == before
    assert {path: path.stat().st_ino for path in inodes} == inodes
    write(tmp_path, folders, run_id="other")
    after = texts(tmp_path)
    assert {path.name for path, data in before.items() if after[path] != data} == {"users.acl"}
    assert b"{mine}" not in after[folders.broker / "users.acl"]


def test_a_service_with_a_user_of_its_own_reads_by_its_group(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    write(tmp_path, folders)
    group = os.getgid()
    write_role_secrets(
        tmp_path / "vault", folders, url=URL, run_id="mine", admin="a", days=90, groups={Role.REWARD: group}
    )
    for folder in (folders.certificates[Role.REWARD], folders.urls[Role.REWARD]):
        assert {(path.stat().st_mode & 0o777, path.stat().st_gid) for path in folder.iterdir()} == {(0o440, group)}
    assert {path.stat().st_mode & 0o777 for path in folders.certificates[Role.TRAINER].iterdir()} == {0o400}


def test_certificates_with_a_third_of_their_days_left_are_renewed_by_the_same_authority(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    write(tmp_path, folders, days=30)
    before = read_certificates(folders.certificates[Role.TRAINER], Role.TRAINER)
    # 30 days are more than a third of 60, and less than a third of 120.
    write(tmp_path, folders, days=60)
    assert read_certificates(folders.certificates[Role.TRAINER], Role.TRAINER).chain == before.chain
    write(tmp_path, folders, days=120)
    after = read_certificates(folders.certificates[Role.TRAINER], Role.TRAINER)
    assert after.chain != before.chain and after.authority == before.authority
    assert after.expires > before.expires + 80 * 24 * 3600


def test_a_certificate_that_is_missing_is_made_anew(tmp_path: Path) -> None:
    folders = folders_in(tmp_path)
    write(tmp_path, folders)
    (tmp_path / "vault/certs/trainer.pem").unlink()
    write(tmp_path, folders)
    assert read_certificates(folders.certificates[Role.TRAINER], Role.TRAINER)


def test_an_authority_that_was_not_finished_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path, **of: object) -> None:
        make_authority(folder, hosts=(), days=1)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("headrace.operate.authority.make_authority", fails)
        keep_authority(tmp_path / "certs", hosts=(), days=1)
    assert list(tmp_path.iterdir()) == []
    keep_authority(tmp_path / "certs", hosts=(), days=1)
    assert (tmp_path / "certs").stat().st_mode & 0o777 == 0o700


def test_an_id_that_names_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="run id 'My run' must be"):
        write(tmp_path, folders_in(tmp_path), run_id="My run")
