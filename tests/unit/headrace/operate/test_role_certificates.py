"""Each service of a deployment gets the certificate of its own role alone, and each time the same."""

import os
from pathlib import Path

import pytest

from headrace.operate.authority import AUTHORITY_KEY, keep_authority, make_authority
from headrace.operate.role_certificates import write_role_certificates
from headrace.wire.access.certificates import AUTHORITY, SECRET, read_certificates
from headrace.wire.access.roles import Role

PEOPLE = (Role.OPERATOR, Role.VIEWER, Role.ANNOTATOR)


@pytest.fixture
def folders(tmp_path: Path) -> dict[Role, Path]:
    """A folder for each service, and one for people; beside them `valkey`."""
    found = {role: tmp_path / "tokens" / ("user" if role in PEOPLE else role) for role in Role}
    for folder in {*found.values(), tmp_path / "valkey"}:
        folder.mkdir(parents=True)
    return found


def write(folders: dict[Role, Path], *, days: int = 90, groups: dict[Role, int] | None = None) -> None:
    root = folders[Role.TRAINER].parents[1]
    write_role_certificates(root / "certs", folders, root / "valkey", host="valkey", days=days, groups=groups or {})


def texts(*folders: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def test_each_role_and_the_broker_get_their_certificate_and_no_key_of_another(
    folders: dict[Role, Path], tmp_path: Path
) -> None:
    write(folders)
    for role, folder in folders.items():
        assert read_certificates(folder, role).authority == (tmp_path / "certs" / AUTHORITY).read_bytes()
        shared = {AUTHORITY, *(f"{one}{part}.pem" for one in PEOPLE for part in ("", "-key"))}
        assert {path.name for path in folder.iterdir()} == (shared if role in PEOPLE else set(SECRET)), role
    assert {path.name for path in (tmp_path / "valkey").iterdir()} == set(SECRET)
    given = texts(tmp_path / "tokens", tmp_path / "valkey")
    keys = [data for path, data in given.items() if "key" in path.name]
    assert len(set(keys)) == len(keys) == len(Role) + 1
    assert (tmp_path / "certs" / AUTHORITY_KEY).read_bytes() not in given.values()
    by_all = {path for path in given if path.stat().st_mode & 0o777 != 0o400}
    assert by_all == {tmp_path / "valkey" / SECRET[0]}


def test_rewriting_certificates_changes_nothing_and_recreates_missing_files(
    folders: dict[Role, Path], tmp_path: Path
) -> None:
    write(folders)
    before = {path: (data, path.stat().st_ino) for path, data in texts(tmp_path).items()}
    write(folders)
    assert {path: (data, path.stat().st_ino) for path, data in texts(tmp_path).items()} == before
    (tmp_path / "certs/trainer.pem").unlink()
    write(folders)
    assert read_certificates(folders[Role.TRAINER], Role.TRAINER)


def test_a_service_with_a_user_of_its_own_reads_by_its_group(folders: dict[Role, Path]) -> None:
    write(folders)
    group = os.getgid()
    write(folders, groups={Role.REWARD: group})
    stats = [path.stat() for path in folders[Role.REWARD].iterdir()]
    assert {(found.st_mode & 0o777, found.st_gid) for found in stats} == {(0o440, group)}
    assert {path.stat().st_mode & 0o777 for path in folders[Role.TRAINER].iterdir()} == {0o400}


def test_certificates_with_a_third_of_their_days_left_are_renewed_by_the_same_authority(
    folders: dict[Role, Path],
) -> None:
    write(folders, days=30)
    before = read_certificates(folders[Role.TRAINER], Role.TRAINER)
    # 30 days are more than a third of 60, and less than a third of 120.
    write(folders, days=60)
    assert read_certificates(folders[Role.TRAINER], Role.TRAINER).chain == before.chain
    write(folders, days=120)
    after = read_certificates(folders[Role.TRAINER], Role.TRAINER)
    assert after.chain != before.chain and after.authority == before.authority
    assert after.expires > before.expires + 80 * 24 * 3600


def test_an_interrupted_authority_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path, **of: object) -> None:
        make_authority(folder, hosts=(), days=1)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("headrace.operate.authority.make_authority", fails)
        keep_authority(tmp_path / "certs", hosts=(), days=1)
    assert list(tmp_path.iterdir()) == []
    keep_authority(tmp_path / "certs", hosts=(), days=1)
    assert (tmp_path / "certs").stat().st_mode & 0o777 == 0o700
