"""Tokens on disk: whole or not at all, for the owner alone, one a role."""

import errno
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import ACCEPTED, digest_of, divide_tokens, make_tokens, read_access, remove_tokens
from headrace.wire.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run" / "tokens"
    make_tokens(made)
    return made


def test_each_role_has_a_token_of_its_own_that_the_owner_alone_reads(folder: Path) -> None:
    tokens = {role: (folder / role).read_text() for role in Role}
    assert len(set(tokens.values())) == len(Role) and all(len(one) == 64 for one in tokens.values())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    accepted = (folder / ACCEPTED).read_text()
    assert not any(token in accepted for token in tokens.values())
    access = read_access(folder, Role.REWARD)
    assert access.token == tokens[Role.REWARD]
    assert {role: access.roles_of(token) for role, token in tokens.items()} == {role: {role} for role in Role}
    assert not access.roles_of("") and not access.roles_of(digest_of(tokens[Role.TRAINER]))


def test_existing_tokens_are_kept(folder: Path) -> None:
    before = {path.name: path.read_text() for path in folder.iterdir()}
    make_tokens(folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == before


def test_processes_that_create_tokens_at_once_agree_on_one_set(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "tokens"

    def access(role: Role) -> str:
        make_tokens(folder)
        return read_access(folder, role).token

    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(Role, pool.map(access, Role), strict=True))
    assert found == {role: (folder / role).read_text() for role in Role}
    assert [path.name for path in folder.parent.iterdir()] == ["tokens"]


def test_unreadable_token_files_are_named(folder: Path) -> None:
    (folder / Role.TRAINER).write_text("")
    with pytest.raises(ConfigError, match=r"tokens/trainer is empty"):
        read_access(folder, Role.TRAINER)
    (folder / ACCEPTED).write_text(json.dumps({"stranger": ["00"]}))
    with pytest.raises(ConfigError, match=r"no tokens for reward .*no digests by role.*HEADRACE_TOKENS"):
        read_access(folder, Role.REWARD)
    with pytest.raises(ConfigError, match=r"elsewhere: no tokens for rollout .*No such file"):
        read_access(folder.parent / "elsewhere", Role.ROLLOUT)


def test_services_with_folders_of_their_own_accept_each_other_and_have_one_token_each(tmp_path: Path) -> None:
    shared = {Role.OPERATOR, Role.VIEWER, Role.ANNOTATOR}
    folders = {role: tmp_path / ("user" if role in shared else role) for role in Role}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    divide_tokens(folders)
    tokens = {role: (folder / role).read_text() for role, folder in folders.items()}
    assert len(set(tokens.values())) == len(Role)
    for role, folder in folders.items():
        assert {path.name for path in folder.iterdir()} == {ACCEPTED, *(shared if role in shared else {role})}
        access = read_access(folder, role)
        assert {one: access.roles_of(token) for one, token in tokens.items()} == {one: {one} for one in Role}
        assert ((folder / role).stat().st_mode & 0o777, (folder / ACCEPTED).stat().st_mode & 0o777) == (0o400, 0o444)
    divide_tokens(folders)
    assert {role: (folder / role).read_text() for role, folder in folders.items()} == tokens
    (folders[Role.REWARD] / Role.REWARD).chmod(0o600)
    (folders[Role.REWARD] / Role.REWARD).write_text("")
    with pytest.raises(ConfigError, match=r"reward/reward is empty: remove it"):
        divide_tokens(folders)


def test_tokens_that_no_service_uses_any_more_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_tokens(folder)
    remove_tokens(folder)
    assert not folder.exists()

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("shutil.rmtree", refuse)
    with pytest.raises(
        ConfigError, match=r"run/tokens: tokens that no service uses .*Permission denied.*remove the folder"
    ):
        remove_tokens(folder)
