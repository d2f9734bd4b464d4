"""Ports: free ones are told from taken ones, and taken ones are named with their key."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from headrace.supervisor import port_claims
from headrace.supervisor.ports import check_free, is_free, pick_ports
from headrace.wire.errors import ConfigError


def test_picked_ports_are_free_different_and_below_the_kernels_own_range() -> None:
    ports = pick_ports(20, taken=[20_000])
    assert len(set(ports)) == 20 and 20_000 not in ports
    assert all(is_free(port) and 10_080 < port < 32_768 for port in ports)


OTHER = """
import sys
from headrace.supervisor import ports
taken = {int(port) for port in sys.argv[1].split(",")}
ports.random.sample = lambda *_: [*taken, *range(31_000, 31_500)]
print(*ports.pick_ports(3), flush=True)
sys.stdin.read()
"""


def other(taken: Iterable[int]) -> "subprocess.Popen[str]":
    """A process that would rather pick those that are taken; it holds what it picked until its stdin ends."""
    command = [sys.executable, "-c", OTHER, ",".join(map(str, taken))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def picked_by(process: "subprocess.Popen[str]") -> set[int]:
    assert process.stdout is not None
    return {int(port) for port in process.stdout.readline().split()}


def test_what_one_run_has_picked_no_other_picks_before_it_listens() -> None:
    ours = pick_ports(5)
    with other(ours) as first:
        theirs = picked_by(first)
        with other([*ours, *theirs]) as second:
            both = theirs | picked_by(second)
            second.communicate(timeout=60)
        first.communicate(timeout=60)
    assert len(both) == 6 and not both & set(ours)


def test_the_ports_of_a_process_that_is_killed_are_free_again() -> None:
    with other([31_600]) as first:
        theirs = picked_by(first)
        first.kill()
        first.wait(60)
    with other(theirs) as second:
        assert picked_by(second) == theirs
        second.communicate(timeout=60)


def test_without_a_folder_for_locks_ports_are_picked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_claims, "_file", lambda: None)
    first, second = pick_ports(5), pick_ports(5)
    assert not set(first) & set(second)


SQUATTER = """
import fcntl, os, sys
os.setuid(65534)
os.umask(0)
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o666)
fcntl.lockf(file, fcntl.LOCK_EX, 70_000, 2)  # Byte 0 is left: the file looks as if it could be locked.
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user too")
def test_a_file_that_another_user_made_first_and_locked_keeps_no_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory() as folder:  # Others may not enter pytest's own.
        Path(folder).chmod(0o755)
        _check_beside_a_squatter(Path(folder), monkeypatch)


def _check_beside_a_squatter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, home = tmp_path / "tmp", tmp_path / "home"
    shared.mkdir()
    shared.chmod(0o1777)
    home.mkdir()
    monkeypatch.setenv("TMPDIR", str(shared))
    monkeypatch.setenv("HOME", str(home))
    command = [sys.executable, "-c", SQUATTER, str(shared / f"headrace-ports-{os.getuid()}.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as squatter:
        assert squatter.stdout is not None and squatter.stdout.readline() == "held\n"
        with other([31_600]) as first:
            theirs = picked_by(first)
            with other(theirs) as second:  # Claims still count between processes of one user.
                both = theirs | picked_by(second)
                second.communicate(timeout=60)
            first.communicate(timeout=60)
        squatter.communicate(timeout=60)
    assert len(theirs) == 3 and len(both) == 6
    private = shared / f"headrace-{os.getuid()}"
    assert private.stat().st_mode & 0o777 == 0o700 and (private / f"headrace-ports-{os.getuid()}.lock").is_file()


@pytest.mark.parametrize("odd", ["pipe", "link", "open to all", "folder"])
def test_what_is_no_file_of_this_user_alone_is_left_for_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    name = f"headrace-ports-{os.getuid()}.lock"
    match odd:
        case "pipe":
            os.mkfifo(tmp_path / name)
        case "link":
            (tmp_path / "elsewhere").touch(0o600)
            (tmp_path / name).symlink_to(tmp_path / "elsewhere")
        case "folder":
            (tmp_path / name).mkdir()
        case _:
            (tmp_path / name).touch()
            (tmp_path / name).chmod(0o666)
    file = port_claims._file.__wrapped__()
    assert file is not None
    try:
        assert os.readlink(f"/proc/self/fd/{file}") == str(tmp_path / f"headrace-{os.getuid()}" / name)
    finally:
        os.close(file)


def test_a_folder_that_others_may_write_to_is_not_taken_for_a_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (tmp_path / f"headrace-{os.getuid()}").mkdir()
    (tmp_path / f"headrace-{os.getuid()}").chmod(0o777)
    (tmp_path / f"headrace-ports-{os.getuid()}.lock").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(home))
    assert list(port_claims._folders()) == [tmp_path, home / ".cache" / "headrace"]


def test_a_taken_port_is_named_with_its_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"run.toml:3: \[trainer\] http_port = {port}: the port is in use"):
            check_free([(port, "run.toml:3: [trainer] http_port")])
    check_free([(port, "x")])


def test_a_port_wanted_twice_is_refused() -> None:
    (port,) = pick_ports(1)
    with pytest.raises(ConfigError, match="the same port as a"):
        check_free([(port, "a"), (port, "b")])
