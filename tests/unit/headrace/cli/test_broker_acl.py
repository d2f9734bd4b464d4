"""`headrace broker acl`: files that a server and its services can use, and the same ones when it is done again."""

from pathlib import Path

import pytest

from tests.verbs import result, said

URL = ("--url", "rediss://valkey:6379/0?ssl_ca_certs=/tls/ca.pem")


def test_a_url_and_a_user_is_written_for_each_role_and_passwords_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "users"
    roles = result("broker", "acl", folder, "--run-id", "mine", *URL)["roles"]
    assert set(roles) == {"orchestrator", "trainer", "rollout", "reward", "environment", "operator"}
    before = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(before) == {"users.acl", *(f"{role}.url" for role in roles)}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600} and folder.stat().st_mode & 0o77 == 0
    words = [before[f"{role}.url"].removeprefix(f"rediss://{role}:").partition("@") for role in roles]
    assert {rest for _, _, rest in words} == {"valkey:6379/0?ssl_ca_certs=/tls/ca.pem\n"}
    assert len({password for password, _, _ in words}) == len(roles)
    assert not any(password in before["users.acl"] for password, _, _ in words)
    assert "user default off" in before["users.acl"].splitlines()
    admin = "user admin on >of-the-test ~* &* +@all\n"
    before["users.acl"] += admin
    (folder / "users.acl").write_text(before["users.acl"] + "\n")
    said("broker", "acl", folder, "--run-id", "mine", *URL)
    assert {path.name: path.read_text() for path in folder.iterdir()} == before
    (folder / "trainer.url").unlink()
    said("broker", "acl", folder, "--run-id", "mine", *URL)
    after = {path.name: path.read_text() for path in folder.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"trainer.url", "users.acl"}


@pytest.mark.parametrize("url", ["unix:///run/s", "redis://:pass-phrase@valkey/0", "valkey:6379", "redis:///0"])
def test_a_url_that_names_no_server_or_a_password_is_refused(tmp_path: Path, url: str) -> None:
    told = said("broker", "acl", tmp_path / "users", "--url", url, status=2)
    assert "redis://HOST:PORT/0 or rediss://" in told and "pass-phrase" not in told
    assert "--run-id: run id 'a b' must be" in said(
        "broker", "acl", tmp_path / "users", *URL, "--run-id", "a b", status=2
    )
    assert not (tmp_path / "users").exists()
