"""What the first container says of folders that its user cannot use: one line each, with the way out."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from headrace.wire.access.certificates import SECRET, read_certificates
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import ACCEPTED, read_access
from tests.unit.deploy.scripts import DEPLOY, load

UID = 10001
CALL = """
import codecs, importlib.util, json, os, pathlib, sys
spec = importlib.util.spec_from_file_location("setup", sys.argv[1])
setup = importlib.util.module_from_spec(spec)
spec.loader.exec_module(setup)
if os.geteuid() == 0:
    # Last, for the interpreter's own files may lie where only root reads; so may the encoding's.
    codecs.lookup("ascii")
    import headrace.operate.role_certificates
    os.setgroups([10002]), os.setgid(10001), os.setuid(10001)
root, names = pathlib.Path(sys.argv[2]), json.loads(sys.argv[3])
groups = {"reward": 10002} if os.getuid() == 10001 else {}
broker, grafana, tokens = (root / "state" / name for name in ("broker", "grafana", "tokens"))
setup.main(root, broker, grafana, tokens, groups, names, tls=sys.argv[4] == "tls")
"""
SHARES = ("trainer", "rollout", "reward", "environment", "orchestrator", "user")
NAMES = '{"CONFIG": "./my-run", "MODELS": "models", "RUNS": "/data/runs", "RUN": "demo"}'


@pytest.fixture
def root() -> Iterator[Path]:
    """The mounts of a container; another user can reach them, unlike pytest's own folder."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-setup-"))
    folder.chmod(0o755)
    for name in (
        "deploy/prometheus/rules",
        "deploy/grafana",
        "config",
        "models",
        "runs",
        "state/broker",
        "state/grafana",
        *(f"state/tokens/{name}" for name in SHARES),
    ):
        (folder / name).mkdir(parents=True)
    for name in ("deploy/prometheus/prometheus.yml", "deploy/prometheus/rules/a.yml", "config/run.toml"):
        (folder / name).touch()
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for name in ("runs", "state/broker", "state/grafana", *(f"state/tokens/{name}" for name in SHARES)):
        give(folder / name)
    yield folder
    subprocess.run(["chmod", "-R", "u+rwX", folder], check=True)
    shutil.rmtree(folder)


def give(folder: Path) -> None:
    if os.geteuid() == 0:
        os.chown(folder, UID, UID)


def run(root: Path, *, tls: bool = False) -> "subprocess.CompletedProcess[str]":
    """As the containers' user, where this one may become another; else as this one, which is not root either."""
    words = [str(DEPLOY / "compose/setup.py"), str(root), NAMES, "tls" if tls else ""]
    command = [sys.executable, "-P", "-c", CALL, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def uid() -> int:
    return UID if os.geteuid() == 0 else os.getuid()


def made(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "state").rglob("*") if path.is_file())


def test_a_checkout_under_umask_077_is_reported_with_a_fix_and_nothing_is_created(root: Path) -> None:
    for name in ("deploy/prometheus", "config"):
        (root / name).chmod(0o000)
    done = run(root)
    assert done.returncode == 2 and made(root) == []
    first, second = done.stderr.splitlines()
    assert first.startswith("deploy/prometheus (mode 0000 of ")
    assert first.endswith(
        f"cannot be read by uid {uid()} of the containers, as after a checkout under umask 077: "
        "chmod -R go+rX deploy/prometheus"
    )
    assert second.startswith("CONFIG: my-run (mode 0000") and second.endswith("chmod -R go+rX ./my-run")


def test_an_unreadable_file_beside_the_config_is_only_a_warning(root: Path) -> None:
    (root / "config/run.toml").chmod(0o000)
    (root / "config/data").mkdir(mode=0o000)
    done = run(root)
    assert done.returncode == 0 and made(root)
    folder, line = done.stderr.splitlines()
    assert folder.startswith("CONFIG: my-run/data (mode 0000 of ")
    assert line.startswith("CONFIG: my-run/run.toml (mode 0000 of ") and line.endswith(
        "if the run needs it, chmod -R go+rX my-run/run.toml"
    )


@pytest.mark.parametrize(
    ("folder", "named", "way_out"),
    [
        ("runs", "/data/runs", "chown"),
        ("runs/demo", "/data/runs/demo", "chown -R"),
        ("runs/cache", "/data/runs/cache", "chown -R"),
    ],
)
def test_an_unwritable_runs_folder_is_reported_with_uid_and_fix(
    root: Path, folder: str, named: str, way_out: str
) -> None:
    (root / folder).mkdir(exist_ok=True)
    (root / folder).chmod(0o555)
    done = run(root)
    assert done.returncode == 2 and made(root) == []
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"RUNS: {named} (mode 0555 of ")
    group = UID if os.geteuid() == 0 else os.getgid()
    wanted = (
        f"cannot be written to by uid {uid()} of the containers (Permission denied): {way_out} {uid()}:{group} {named}"
    )
    assert line.endswith(wanted)


def test_each_service_gets_its_token_and_the_digests_and_people_get_the_other_tokens(root: Path) -> None:
    done = run(root)
    assert (done.returncode, done.stderr) == (0, "")
    shares = {name: root / "state/tokens" / name for name in SHARES}
    services = {role for role in Role if role in shares}
    people = set(Role) - services
    for name, folder in shares.items():
        assert {path.name for path in folder.iterdir()} == {ACCEPTED, *(people if name == "user" else {name})}
    assert len({(folder / ACCEPTED).read_text() for folder in shares.values()}) == 1
    tokens = {role: (shares.get(role, shares["user"]) / role).read_text() for role in Role}
    access = read_access(shares["reward"], Role.REWARD)
    assert {role: access.roles_of(token) for role, token in tokens.items()} == {role: {role} for role in Role}
    for role in services:
        found = (shares[role] / role).stat()
        is_given = role == Role.REWARD and os.geteuid() == 0
        assert (found.st_mode & 0o777, found.st_gid == 10002) == ((0o440, True) if is_given else (0o400, False)), role


def test_a_world_writable_runs_folder_is_a_warning_and_one_the_group_cannot_read_is_refused(
    root: Path,
) -> None:
    (root / "runs").chmod(0o777)
    done = run(root)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("RUNS: /data/runs (mode 0777 of ") and line.endswith("chmod go-w /data/runs")
    (root / "runs").chmod(0o700)
    done = run(root)
    group = UID if os.geteuid() == 0 else os.getgid()
    assert done.returncode == 2 and done.stderr.splitlines() == [
        f"RUNS: /data/runs (mode 0700 of {uid()}:{group}) cannot be read by group {group}, which reward and "
        f"environment are in: chgrp {group} /data/runs && chmod g+rx /data/runs"
    ]


def test_over_tls_a_service_also_gets_its_certificate_and_the_broker_listens_on_tls_alone(root: Path) -> None:
    state = root / "state"
    (state / "vault").mkdir()
    give(state / "vault")
    done = run(root, tls=True)
    assert (done.returncode, done.stderr) == (0, "")
    for name in SHARES[:-1]:
        files = list((state / "tokens" / name).iterdir())
        assert {path.name for path in files} == {name, ACCEPTED, *SECRET}
        assert read_certificates(state / "tokens" / name, Role(name))
        by_group = name == "reward" and os.geteuid() == 0
        private = [path.stat() for path in files if path.name != ACCEPTED]
        assert {found.st_mode & 0o777 for found in private} == {0o440 if by_group else 0o400}, name
        assert not by_group or {found.st_gid for found in private} == {10002}
    lines = (state / "broker/valkey.conf").read_text().splitlines()
    password = (state / "broker/password").read_text().strip()
    assert {"port 0", "tls-port 6379", f"requirepass {password}"} <= set(lines)
    url = (state / "broker/url").read_text().strip()
    assert url == f"rediss://:{quote(password)}@valkey:6379/0?ssl_ca_certs=/run/broker/{SECRET[0]}"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (state / "broker").iterdir()}
    assert {name for name, mode in modes.items() if mode == 0o440} == {"url", SECRET[0]}
    assert modes.keys() == {"password", "valkey.conf", "url", *SECRET}
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    assert run(root, tls=True).returncode == 0
    assert {path: path.read_bytes() for path in state.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["reward=10002", "environment=10003", "tls"], ({"reward": 10002, "environment": 10003}, True)),
        ([], ({}, False)),
    ],
)
def test_groups_of_services_and_tls_are_read_from_the_options(
    words: list[str], found: tuple[dict[str, int], bool]
) -> None:
    assert load("compose/setup.py").options_of(words) == found
