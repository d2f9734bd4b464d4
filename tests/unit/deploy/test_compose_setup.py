"""What the first start makes: passwords, and what follows from them."""

import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.unit.deploy.scripts import load

setup = load("compose/setup.py")


def folders(tmp_path: Path) -> tuple[Path, Path]:
    found = tmp_path / "broker", tmp_path / "grafana"
    for folder in found:
        folder.mkdir()
    return found


def test_passwords_are_random_readable_by_the_owner_alone_and_kept(tmp_path: Path) -> None:
    broker, grafana = folders(tmp_path)
    setup.make_secrets(broker, grafana)
    files = [path for folder in (broker, grafana) for path in folder.iterdir()]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files}
    # The URL is also for services with users of their own, by the group that they are in.
    assert modes.pop("url") == 0o440 and set(modes.values()) == {0o400}
    passwords = [(broker / "password").read_text(), (grafana / "admin_password").read_text()]
    assert passwords[0] != passwords[1] and all(len(one.strip()) >= 32 for one in passwords)
    before = {path.name: path.read_text() for path in files}
    setup.make_secrets(broker, grafana)
    assert {path.name: path.read_text() for folder in (broker, grafana) for path in folder.iterdir()} == before


def test_server_and_services_use_a_password_that_the_user_provides(tmp_path: Path) -> None:
    broker, grafana = folders(tmp_path)
    (broker / "password").write_text("a/b:c@d\n")
    setup.make_secrets(broker, grafana)
    url = urlsplit((broker / "url").read_text().strip())
    assert (unquote(url.password or ""), url.hostname, url.port) == ("a/b:c@d", "valkey", 6379)
    lines = (broker / "valkey.conf").read_text().splitlines()
    assert "requirepass a/b:c@d" in lines and 'save ""' in lines and "maxmemory-policy noeviction" in lines


@pytest.mark.parametrize("password", ["", "two words", 'quo"te', "back\\slash", "com#ment"])
def test_a_password_that_the_config_file_would_misread_is_rejected(tmp_path: Path, password: str) -> None:
    broker, grafana = folders(tmp_path)
    (broker / "password").write_text(password)
    with pytest.raises(SystemExit, match="password must be"):
        setup.make_secrets(broker, grafana)
