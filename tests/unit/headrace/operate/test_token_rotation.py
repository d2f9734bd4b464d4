"""A rotation never leaves a service without a token that is accepted, wherever it is interrupted."""

from pathlib import Path

import pytest

from headrace.operate.token_rotation import RotationPhase, rotate
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import make_tokens, read_access
from headrace.wire.errors import ConfigError

ACCEPT, USE, RETIRE = RotationPhase


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_tokens(tmp_path / "tokens")
    return tmp_path / "tokens"


def tokens(folder: Path) -> dict[Role, str]:
    return {role: read_access(folder, role).token for role in Role}


def opens(folder: Path, given: dict[Role, str]) -> set[Role]:
    """The roles whose token is that of its role, and no other."""
    access = read_access(folder, Role.VIEWER)
    return {role for role, token in given.items() if access.roles_of(token) == {role}}


def test_new_tokens_are_accepted_before_they_are_used_and_old_ones_until_they_are_retired(folder: Path) -> None:
    old = tokens(folder)
    rotate(folder, ACCEPT)
    assert tokens(folder) == old and opens(folder, old) == set(Role)
    rotate(folder, USE)
    new = tokens(folder)
    assert not set(new.values()) & set(old.values()) and len(set(new.values())) == len(Role)
    assert opens(folder, old) == opens(folder, new) == set(Role)
    rotate(folder, RETIRE)
    assert tokens(folder) == new and opens(folder, new) == set(Role) and not opens(folder, old)
    assert {path.name for path in folder.iterdir()} == {*Role, "accepted.json"}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_phase_that_is_repeated_changes_nothing_more(folder: Path) -> None:
    old = tokens(folder)
    rotate(folder, ACCEPT)
    accepted = read_access(folder, Role.VIEWER).accepted
    rotate(folder, ACCEPT)
    assert read_access(folder, Role.VIEWER).accepted == accepted
    rotate(folder, USE)
    new = tokens(folder)
    rotate(folder, USE)
    rotate(folder, RETIRE)
    rotate(folder, RETIRE)
    assert tokens(folder) == new and opens(folder, new) == set(Role) and not opens(folder, old)


def test_a_phase_out_of_order_is_refused_and_locks_no_service_out(folder: Path) -> None:
    rotate(folder, ACCEPT)
    with pytest.raises(ConfigError, match=r"the new token of trainer is not used yet: the phase `use` comes first"):
        rotate(folder, RETIRE)
    (folder / "trainer.next").write_text("from elsewhere")
    with pytest.raises(ConfigError, match=r"trainer.next: its token is not accepted yet: the phase `accept`"):
        rotate(folder, USE)
    assert opens(folder, tokens(folder)) == set(Role)
    with pytest.raises(ConfigError, match="no tokens for trainer"):
        rotate(folder / "none", ACCEPT)
