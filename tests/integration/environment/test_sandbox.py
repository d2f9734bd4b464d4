"""What the user's code sees of its machine: secrets are planted where a service has them, and searched for."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.services.environment.child.errors import ChildDiedError
from headrace.services.environment.child.pool import ChildPool
from headrace.services.environment.child.process import ChildProcess
from headrace.wire.errors import ConfigError
from tests.integration.environment.test_child import CONFIG, child, need_sandbox, reset, use

SECRET = "planted-3f9c"


async def said(one: ChildProcess, tool: str, **arguments: Any) -> str:
    answer = await use(one, tool, **arguments)
    return str(answer["messages"][0]["content"])


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory with secrets, and the copy of the user's code, below a folder that a child may read."""
    folder = tmp_path / "shared" / "run"
    (folder / "config").mkdir(parents=True)
    (folder / "config" / "orchestrator.json").write_text(SECRET)
    (folder / "environment").mkdir()
    games = Path(__file__).parent / "worlds" / "games.py"
    (folder / "environment" / "games.py").write_text(games.read_text())
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "url").write_text(f"redis://:{SECRET}@valkey")
    return folder


async def test_only_the_named_folders_can_be_read_and_no_other_process_is_seen(run_dir: Path) -> None:
    need_sandbox()
    shared, broker = run_dir.parent, run_dir.parents[1] / "broker"
    (shared / "words.txt").write_text("apple")
    places = {"run_dir": run_dir, "path": run_dir / "environment", "folders": (shared,)}
    async with child("look", "note", "processes", network=False, max_result_chars=100_000, **places) as one:
        await reset(one)
        seen = await said(one, "processes")
        assert "child.main" in seen and "pytest\\u0000" not in seen, seen
        # Shared memory lies in the folder that `memory_mib` bounds.
        assert await said(one, "note", path="/dev/shm/queue", text="x") == "written"
        assert "queue" in (await said(one, "look", path="/tmp")).split(",")
        assert await said(one, "look", path=str(shared / "words.txt")) == "apple"
        assert await said(one, "look", path=str(run_dir)) == "environment"
        secret = broker / "url"
        for hidden in (run_dir / "config" / "orchestrator.json", secret, f"/proc/1/root{secret}", "/etc/shadow"):
            assert SECRET not in (answer := await said(one, "look", path=str(hidden)))
            assert "FileNotFoundError" in answer or "PermissionError" in answer, answer
        for closed in (Path("/x"), Path("/usr/x"), shared / "x", run_dir / "x", run_dir / "environment" / "games.py"):
            answer = await said(one, "note", path=str(closed), text="x")
            assert "Read-only" in answer or "PermissionError" in answer, (closed, answer)


async def test_certificates_can_be_read_and_the_keys_beside_them_cannot() -> None:
    need_sandbox()
    if os.geteuid() or not Path("/etc/ssl/certs").is_dir():
        pytest.skip("needs root, who could read a key, and /etc/ssl")
    key = Path("/etc/ssl/private/headrace-planted.key")
    made = not key.parent.exists()
    key.parent.mkdir(mode=0o700, exist_ok=True)
    key.write_text(SECRET)
    try:
        async with child("look", network=True) as one:
            await reset(one)
            assert SECRET not in await said(one, "look", path=str(key))
            assert "Error" not in await said(one, "look", path="/etc/ssl/certs")
    finally:
        key.unlink()
        if made:
            key.parent.rmdir()


@pytest.mark.parametrize("isolated", [True, False])
async def test_only_listed_variables_and_those_in_the_config_are_passed_on(
    isolated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isolated:
        need_sandbox()
    for name in ("HEADRACE_BROKER__URL", "WANDB_API_KEY", "HF_TOKEN", "SEARCH_KEY"):
        monkeypatch.setenv(name, f"{name}-{SECRET}")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    async with child("variables", variables=("SEARCH_KEY",), sandbox=isolated, max_result_chars=100_000) as one:
        await reset(one)
        found: dict[str, str] = json.loads(await said(one, "variables"))
    assert found.pop("SEARCH_KEY") == f"SEARCH_KEY-{SECRET}" and SECRET not in str(found), found
    assert (found["LC_ALL"], found["PATH"]) == ("C.UTF-8", os.environ["PATH"])
    assert found["HOME"] == found["TMPDIR"] == found["cwd"] == found["temporary"]
    assert isolated == (found["cwd"] == "/tmp")
    assert isolated or not Path(found["cwd"]).exists(), "its folder is gone with it"


async def test_a_variable_that_is_named_and_not_set_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"environment.variables: NOT_SET_HERE is not set"):
        async with child("add", variables=("NOT_SET_HERE",)):
            pass


async def test_the_start_is_refused_where_no_sandbox_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As bubblewrap says it in a container whose seccomp profile refuses namespaces."""
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ConfigError, match=r"cannot be isolated: .*No permissions.*environment-sandbox.*sandbox = "):
        async with child("add", network=False):
            pass


async def test_a_sandbox_that_fails_once_children_have_started_costs_one_try_and_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the machine has no more processes for a moment."""
    need_sandbox()
    failing, real = tmp_path / "failing", shutil.which("bwrap")
    wrapper = tmp_path / "bwrap"
    wrapper.write_text(
        f"#!/bin/sh\n[ -e {failing} ] && {{ echo 'bwrap: Creating new namespace failed: EAGAIN'; exit 1; }}\n"
    )
    with wrapper.open("a") as file:
        file.write(f'exec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    pool = ChildPool(lambda: ChildProcess(replace(CONFIG, tools=("games:add",), network=False)), 1)
    try:
        async with pool.child() as one:
            await one.kill()
        failing.touch()
        with pytest.raises(ChildDiedError, match="EAGAIN"):
            async with pool.child():
                pass
        failing.unlink()
        async with pool.child() as other:
            await reset(other)
            assert await said(other, "add", a=1, b=2) == "3"
    finally:
        await pool.close()
