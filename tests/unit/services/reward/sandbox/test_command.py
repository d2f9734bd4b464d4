import json
import os
import sys

import pytest

from headrace.services.reward.sandbox import bubblewrap, cpu
from headrace.services.reward.sandbox.inside.confine import Limits


@pytest.fixture
def argv(monkeypatch):
    monkeypatch.setattr(bubblewrap, "find", lambda: "/usr/bin/true")

    def made(packages=None, slot=0):
        command = bubblewrap.command(Limits(), packages, slot=slot, control=7, sources={"server.py": 9})
        return json.loads(command[-1])

    return made


def binds(words):
    return {words[at + 2] for at, word in enumerate(words) if word in ("--ro-bind", "--ro-bind-try")}


def test_the_sandbox_binds_only_system_folders_and_python(argv):
    allowed = {"/usr", "/etc/ld.so.cache", "/bin", "/lib", "/lib32", "/lib64", os.path.realpath(sys.base_prefix)}
    words = argv()["argv"]
    assert binds(words) <= allowed
    assert "--bind" not in words
    assert "--proc" not in words


def test_all_namespaces_are_new_and_all_privileges_dropped(argv):
    words = argv()["argv"]
    for option in ("user", "pid", "net", "ipc", "uts"):
        assert f"--unshare-{option}" in words
    for option in ("--die-with-parent", "--new-session", "--clearenv"):
        assert option in words
    assert words[words.index("--cap-drop") + 1] == "ALL"
    assert [words[at + 1] for at, word in enumerate(words) if word == "--cap-add"] == ["CAP_SYS_ADMIN"]
    assert words.index("--remount-ro") > max(at for at, word in enumerate(words) if word == "--ro-bind-data")


def test_each_sandbox_has_its_own_uid_and_none_is_root(argv):
    assert [argv(slot=slot)["uid"] for slot in range(3)] == [64000, 64001, 64002]


def test_only_the_inside_is_shown_to_the_sandbox():
    names = {path.name for path in bubblewrap.INSIDE.iterdir() if path.suffix == ".py"}
    assert names == {"__init__.py", "confine.py", "plain.py", "prelude.py", "program.py", "seccomp.py", "server.py"}
    for name in names:
        text = (bubblewrap.INSIDE / name).read_text()
        imported = {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))}
        own = "headrace.services.reward.sandbox.inside"
        assert all(module.startswith(own) or module in sys.stdlib_module_names for module in map(root_of, imported))


def root_of(module: str) -> str:
    return module if module.startswith("headrace.services.") else module.partition(".")[0]


def test_a_quota_is_fewer_cpus(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu, "_QUOTA", tmp_path / "cpu.max")
    own = len(os.sched_getaffinity(0))
    for text, available in ((None, own), ("max 100000\n", own), ("50000 100000\n", 0.5)):
        if text is not None:
            (tmp_path / "cpu.max").write_text(text)
        assert cpu.available() == available
