"""The fork server with real processes: what it forks is a child like any other, and a run does without it."""

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace.config.schema import RunFile
from headrace.run.preload import begin_fork_server
from headrace.supervisor.fork_server.client import ForkServer, can_fork
from headrace.supervisor.once import ChildFailedError, run_once
from headrace.supervisor.process import ProcessPlan, ServiceProcess
from headrace.wire.config.settings import RunTable
from headrace.wire.errors import WaitTimeoutError
from tests.waiting import until

SERVICE = """
import json, os, sys, time
import marker
here = {"ppid": os.getppid(), "pgid": os.getpgid(0), "name": __name__, "loaded_by": marker.LOADED_BY}
here |= {"argv": sys.argv[1:], "orig": sys.orig_argv, "env": dict(os.environ)}
here |= {"title": open("/proc/self/cmdline").read()}
print(json.dumps(here), flush=True)
what = sys.argv[1]
if what == "sleep":
    time.sleep(600)
if what == "raise":
    raise ValueError("of the service")
sys.exit(int(what))
"""
MARKER = "import os\nLOADED_BY = os.getpid()\n"
NEVER = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True, name='ticker').start()\n"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Environment in which the modules `service`, `marker` and `ticking` can be imported."""
    modules = tmp_path / "modules"
    modules.mkdir()
    for name, text in (("service", SERVICE), ("marker", MARKER), ("ticking", NEVER)):
        (modules / f"{name}.py").write_text(text)
    for name in ("logs", "run"):
        (tmp_path / name).mkdir()
    paths = (str(modules), os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.fixture
def server(env: dict[str, str]) -> Iterator[ForkServer]:
    server = ForkServer(env, ["marker"], heavy=["service"])
    yield server
    server.close()


def argv(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", "service", *arguments)


def plan(server: ForkServer, env: dict[str, str], *arguments: str) -> ProcessPlan:
    return ProcessPlan(name="trainer", argv=argv(*arguments), env=env, fork_server=server)


def written(run_dir: Path, name: str = "trainer") -> dict[str, object]:
    found: dict[str, object] = json.loads((run_dir / "logs" / f"{name}.log").read_text().splitlines()[0])
    return found


def children() -> list[psutil.Process]:
    """Fork servers and services that live; a worker of pytest may have other children."""
    found = psutil.Process().children(recursive=True)
    living = [one for one in found if one.status() != psutil.STATUS_ZOMBIE]
    return [one for one in living if {"service", "headrace.supervisor.fork_server"} & set(one.cmdline())]


def test_a_forked_process_behaves_like_an_executed_one(tmp_path: Path, env: dict[str, str], server: ForkServer) -> None:
    notices: list[str] = []

    async def live() -> tuple[int, int]:
        child = await ServiceProcess.spawn(plan(server, env | {"OWN": "1"}, "3", "--x"), tmp_path, notices.append)
        assert child.returncode is None
        return child.pid, await child.wait()

    pid, code = asyncio.run(live())
    assert (code, notices) == (3, [])
    found = written(tmp_path)
    assert found["loaded_by"] != pid, "imported anew"
    assert found["ppid"] == os.getpid(), "its death would go unnoticed"
    assert found["pgid"] == pid, "Ctrl-C and the kill of a group would miss it"
    assert found["argv"] == ["3", "--x"] and found["orig"] == list(argv("3", "--x"))
    assert found["name"] == "__main__"
    assert found["env"] == env | {"OWN": "1"}
    assert str(found["title"]).rstrip("\0").split() == list(argv("3", "--x"))
    assert json.loads((tmp_path / "run" / "trainer.json").read_text())["forked"] is True


def test_the_exit_status_of_a_forked_process_is_seen_after_a_signal_and_an_error(
    tmp_path: Path, env: dict[str, str], server: ForkServer
) -> None:
    async def live() -> list[int]:
        sleeping = await ServiceProcess.spawn(plan(server, env, "sleep"), tmp_path, print)
        other = await ServiceProcess.spawn(plan(server, env, "sleep"), tmp_path, print)
        raising = await ServiceProcess.spawn(plan(server, env, "raise"), tmp_path, print)
        os.kill(sleeping.pid, signal.SIGKILL)
        codes = [await sleeping.wait(), await raising.wait()]
        assert other.returncode is None
        await other.terminate(20.0)
        return [*codes, await other.wait()]

    assert asyncio.run(live()) == [-signal.SIGKILL, 1, -signal.SIGTERM]
    assert "ValueError: of the service" in (tmp_path / "logs" / "trainer.log").read_text()
    assert [one for one in psutil.Process().children() if one.status() == psutil.STATUS_ZOMBIE] == []


def test_a_killed_server_leaves_its_processes_alive_and_later_ones_start_without_it(
    tmp_path: Path, env: dict[str, str], server: ForkServer
) -> None:
    notices: list[str] = []

    async def live() -> None:
        first = await ServiceProcess.spawn(plan(server, env, "sleep"), tmp_path, notices.append)
        (fork_server,) = [one for one in children() if one.pid != first.pid]
        fork_server.kill()
        second = await ServiceProcess.spawn(plan(server, env, "7"), tmp_path, notices.append)
        assert await second.wait() == 7
        assert first.returncode is None
        third = await ServiceProcess.spawn(plan(server, env, "8"), tmp_path, notices.append)
        assert await third.wait() == 8
        first.kill()
        await first.wait()

    asyncio.run(live())
    (notice,) = notices
    assert "trainer starts on its own: the fork server: " in notice
    assert json.loads((tmp_path / "run" / "trainer.json").read_text())["forked"] is False


def test_an_import_that_starts_a_thread_is_named_and_the_process_starts_without_the_server(
    tmp_path: Path, env: dict[str, str]
) -> None:
    notices: list[str] = []
    server = ForkServer(env, ["ticking"], heavy=["service"])

    async def live() -> int:
        return await (await ServiceProcess.spawn(plan(server, env, "4"), tmp_path, notices.append)).wait()

    assert asyncio.run(live()) == 4
    (notice,) = notices
    assert "has started threads" in notice and "ticker" in notice


def test_a_frozen_server_is_given_up_by_the_deadline(
    tmp_path: Path, env: dict[str, str], server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[str] = []
    assert json.loads(run_once("the job", argv("0"), env=env, log=None, timeout_s=60, fork_server=server))
    monkeypatch.setattr("headrace.supervisor.fork_server.client._FORKED_S", 0.3)
    monkeypatch.setattr("headrace.supervisor.fork_server.client._ENDED_S", 0.3)
    (fork_server,) = children()
    fork_server.suspend()

    async def live() -> int:
        return await (await ServiceProcess.spawn(plan(server, env, "4"), tmp_path, notices.append)).wait()

    assert asyncio.run(live()) == 4
    (notice,) = notices
    assert "0 s to fork service" in notice
    assert children() == []


def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path, env: dict[str, str], server: ForkServer) -> None:
    async def live() -> None:
        first = await ServiceProcess.spawn(plan(server, env, "0"), tmp_path, print)
        await first.wait()
        for _ in range(20):
            starting = asyncio.create_task(ServiceProcess.spawn(plan(server, env, "sleep"), tmp_path, print))
            await asyncio.sleep(0.002)
            if starting.done():
                (await starting).kill()
                await (await starting).wait()
                continue
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        raise AssertionError("no start was still under way when it was to be cancelled")

    asyncio.run(live())
    until(lambda: not [one for one in children() if "sleep" in one.cmdline()], "the process to end")


def test_a_job_returns_its_output_its_error_and_its_deadline(
    tmp_path: Path, env: dict[str, str], server: ForkServer
) -> None:
    log = tmp_path / "job.log"

    def run(*arguments: str, log: Path | None = None, seconds: float = 60.0) -> str:
        return run_once("the job", argv(*arguments), env=env, log=log, timeout_s=seconds, fork_server=server)

    found = json.loads(run("0"))
    assert found["argv"] == ["0"]
    with pytest.raises(ChildFailedError, match="of the service"):
        run("raise")
    assert run("0", log=log) == ""
    with pytest.raises(ChildFailedError, match=f"see {log}"):
        run("raise", log=log)
    first, *_, last = log.read_text().splitlines()
    assert json.loads(first)["loaded_by"] == found["loaded_by"] and "of the service" in last
    with pytest.raises(WaitTimeoutError, match="the job"):
        run("sleep", seconds=0.2)
    assert len(children()) == 1, "only the server"


def test_when_the_supervisor_dies_the_fork_server_and_its_processes_end(tmp_path: Path, env: dict[str, str]) -> None:
    script = """
import asyncio, os, sys
from headrace.supervisor.fork_server.client import ForkServer
async def live():
    server = ForkServer(dict(os.environ), ["marker"], heavy=["service"])
    pid = await server.start((sys.executable, "-P", "-m", "service", "sleep"), dict(os.environ), 2)
    print(pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(live())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    forked = psutil.Process(int(process.stdout.readline()))
    family = psutil.Process(process.pid).children(recursive=True)
    assert forked in family and len(family) == 2
    process.kill()
    process.wait(20)
    _, alive = psutil.wait_procs(family, timeout=20)
    assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []
    process.stdout.close()


def test_no_fork_server_starts_where_the_kernel_lacks_or_forbids_pidfd_open(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_fork()

    def refused(_pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refused)
    assert not can_fork()
    table = RunTable(id="run", device="cpu")
    assert begin_fork_server(RunFile.model_construct(run=table), {}) is None


def test_no_fork_server_starts_for_a_run_on_a_gpu(tmp_path: Path) -> None:
    table = RunTable(id="run", device="cuda")
    assert begin_fork_server(RunFile.model_construct(run=table), {}) is None
