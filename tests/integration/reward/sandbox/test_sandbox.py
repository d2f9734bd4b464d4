"""The sandbox as a machine: limits, isolation of tests from each other, its own failures, its end."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.services.reward import metrics
from headrace.services.reward.sandbox import (
    Limits,
    Program,
    SandboxError,
    Sandboxes,
    SandboxOutcome,
    bubblewrap,
    cpu,
    slot,
)
from headrace.wire.errors import ConfigError
from tests.integration.reward.sandbox.conftest import Bench, Host, descendants, end_sandbox
from tests.waiting import until_async

ROOT = Path(__file__).parents[4]
IDLE = 3
"""Processes below an idle sandbox's first: bubblewrap again, and the fork server with its parent."""


async def test_a_script_reads_its_input_and_its_output_and_status_come_back(bench: Bench) -> None:
    (outcome,) = await bench.run(
        "import sys\nprint(input(), file=sys.stderr)\nprint(sys.stdin.read())\nsys.exit(3)", "a\nb\n"
    )
    assert (outcome.ending, outcome.code) == ("exit", 3)
    assert (outcome.output, outcome.notes) == (b"b\n\n", "a")


async def test_a_script_runs_as_main_with_files_and_threads(bench: Bench) -> None:
    source = "import sys, os, threading\n"
    source += "open('/tmp/x', 'w').write('kept')\nt = threading.Thread(target=lambda: print('late'))\nt.start()\n"
    source += "print(__name__, sys.argv, os.getcwd(), open('x').read())"
    (outcome,) = await bench.run(source, "")
    assert sorted(outcome.output.decode().split("\n")) == ["", "__main__ ['program.py'] /tmp kept", "late"]


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("print(1)\nexit()", 0),
        ("print(1)\nquit(3)", 3),
        ("import os\nprint(len(os.path.basename(__file__)) // 10)", 0),
        ("import sys\nprint(1)\nsys.stdout.close()", 0),
        ("import io, sys\nout = io.TextIOWrapper(sys.stdout.buffer)\nout.write('1')", 0),
    ],
)
async def test_a_script_behaves_as_under_the_plain_interpreter(bench: Bench, source: str, status: int) -> None:
    (outcome,) = await bench.run(source, "")
    assert (outcome.ending, outcome.code, outcome.output.strip()) == ("exit", status, b"1"), outcome.notes


async def test_a_function_may_use_the_usual_names_without_importing_them(bench: Bench) -> None:
    source = "def f(x: List[int]) -> Optional[int]:\n    return [heapq.nlargest(1, deque(x)), pow(2, 3, 5), inf]"
    (outcome,) = await bench.run(source, "a", function="f")
    assert outcome.output == b'[["a"], 3, Infinity]'
    (outcome,) = await bench.run("print(deque)", "")
    assert outcome.notes.startswith("Traceback") and outcome.code == 1
    (outcome,) = await bench.run("def f(x): return [1]", "a", function="deque")
    assert outcome.notes.endswith("the program defines no deque")
    found: list[SandboxOutcome] = []
    bare = Program("def f(x): return deque(x)", "f", prelude=False)
    await bench.boxes.run(bare, [b'["a"]'], lambda outcome: bool(found.append(outcome)), lambda: None)
    assert "NameError" in found[0].notes


async def test_the_tests_of_a_program_do_not_see_each_other(bench: Bench) -> None:
    source = "import math, os\nprint(os.listdir('/tmp'), math.pi)\nmath.pi = 3\nopen(input(), 'w').write('x' * 100)"
    outcomes = await bench.run(source, "a\n", "b\n", "c\n")
    assert [outcome.output for outcome in outcomes] == [b"[] 3.141592653589793\n"] * 3


async def test_a_programs_memory_holds_no_data_of_the_previous_program(bench: Bench, host: Host) -> None:
    await bench.run(f"print(input(), '{host.secret}')", *[host.secret] * 8)
    dump = "import ctypes\nlibc, base = ctypes.CDLL(None), id([]) & ~0xFFF\nfor k in range(-450, 450):\n"
    dump += "    libc.write(1, ctypes.c_void_p(base + k * 4096), 4096)"  # Where nothing is, it fails.
    outcomes = await bench.run(dump, *[""] * 4)
    assert all(len(outcome.output) >= 1 << 20 for outcome in outcomes)
    assert not any(host.secret.encode() in outcome.output for outcome in outcomes)


async def test_a_program_prints_the_same_each_time_and_draws_the_same_random_numbers(bench: Bench) -> None:
    source = "import random\nprint({'a', 'b', 'c', 'd'}, hash('x'), random.random())"
    outcomes = await bench.run(source, *[""] * 4)
    assert len({outcome.output for outcome in outcomes}) == 1


@pytest.fixture
def one_cpu(bench: Bench) -> Iterator[None]:
    """Whatever is started under it shares one."""
    if not cpu.tells_waiting():
        pytest.skip("this kernel does not tell who waits for a CPU")
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    yield
    os.sched_setaffinity(0, own)


async def on_many(boxes: Sandboxes, source: str) -> list[SandboxOutcome]:
    """As many of it at a time as there are sandboxes."""
    found: list[SandboxOutcome] = []
    count = len(boxes.pids)
    runs = [
        boxes.run(Program(source), [b""], lambda outcome: bool(found.append(outcome)), lambda: None)
        for _ in range(count)
    ]
    await asyncio.gather(*runs)
    return found


async def test_a_program_is_not_charged_for_waiting_for_a_cpu(one_cpu: None) -> None:
    boxes = Sandboxes(4, Limits(timeout_s=0.5))
    await boxes.start()
    works = "import time\nwhile time.process_time() < {}: pass\n"
    for source in (
        works.format(0.3) + "print(1)",
        works.format(0.2) + "time.sleep(0.1)\nprint(1)",
        f"import threading\ndef f():\n    {works.format(0.3).replace(chr(10), chr(10) + '    ')}\n    print(1)\n"
        "t = threading.Thread(target=f)\nt.start()\nt.join()",
    ):
        outcomes = await on_many(boxes, source)
        assert [outcome.output for outcome in outcomes] == [b"1\n"] * 4, [outcome.notes for outcome in outcomes]
        assert max(outcome.wall_s for outcome in outcomes) > 0.55
        assert all(outcome.spent_s < 0.55 for outcome in outcomes)
    await boxes.close()


async def test_a_program_that_never_ends_is_charged_though_all_cpus_are_busy(one_cpu: None) -> None:
    boxes = Sandboxes(4, Limits(timeout_s=0.3))
    await boxes.start()
    for source in ("while True: pass", "import threading\nthreading.Lock().acquire()\nthreading.Event().wait()"):
        outcomes = await on_many(boxes, source)
        assert [outcome.ending for outcome in outcomes] == ["time"] * 4
    await boxes.close()


async def test_memory_and_output_are_limited(bench: Bench) -> None:
    (outcome,) = await bench.run("x = bytearray(600 << 20)", "")
    assert outcome.notes.endswith("MemoryError")
    (outcome,) = await bench.run("x = bytearray(300 << 20)\nprint(len(x))", "")
    assert outcome.is_clean
    (outcome,) = await bench.run("print('x' * (20 << 20))", "")
    assert len(outcome.output) == Limits().output_bytes
    assert outcome.code == 1


@pytest.mark.parametrize("deaths", [1, 2])
async def test_a_test_whose_sandbox_dies_is_run_again_once(bench: Bench, deaths: int) -> None:
    boxes, found = Sandboxes(1, Limits(timeout_s=60)), []
    await boxes.start()
    before = metrics.SANDBOX_FAILURES._value.get()
    program = Program(f"import time\ntime.sleep({3 if deaths == 1 else 50})\nprint('done')")
    running = asyncio.create_task(boxes.run(program, [b""], lambda one: bool(found.append(one)), lambda: None))
    for _ in range(deaths):
        await until_async(lambda: any(len(descendants(pid)) > IDLE for pid in boxes.pids))
        for pid in boxes.pids:
            await end_sandbox(pid)
    if deaths == 1:
        await running
    else:
        with pytest.raises(SandboxError):
            await running
        await boxes.run(Program("print('done')"), [b""], lambda one: bool(found.append(one)), lambda: None)
    assert [outcome.output for outcome in found] == [b"done\n"]
    assert metrics.SANDBOX_FAILURES._value.get() > before
    await boxes.close()


async def test_a_sandbox_that_hangs_is_killed_and_replaced(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot, "_GRACE_S", 0.5)
    for pid in bench.boxes.pids:  # The fork server is the last of each chain.
        for inner in descendants(pid):
            os.kill(inner, signal.SIGSTOP)
    (outcome,) = await bench.run("print(1)", "")
    assert outcome.output == b"1\n"


async def test_closing_ends_running_programs_and_all_processes(bench: Bench) -> None:
    boxes = Sandboxes(1, Limits(timeout_s=30))
    await boxes.start()
    (pid,) = boxes.pids
    inside = descendants(pid)
    running = asyncio.create_task(boxes.run(Program("while True: pass"), [b""], lambda _: True, lambda: None))
    await until_async(lambda: len(descendants(pid)) == len(inside) + 1)
    inside = descendants(pid)
    await boxes.close()
    with pytest.raises(SandboxError):
        await running
    await until_async(lambda: not any(Path(f"/proc/{one}").exists() for one in (pid, *inside)))


async def test_sandboxes_die_with_the_service(bench: Bench, tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\nfrom headrace.services.reward.sandbox import Limits, Program, Sandboxes\n"
        "async def main():\n    boxes = Sandboxes(1, Limits(timeout_s=60))\n    await boxes.start()\n"
        "    sys.stdout.write(f'{boxes.pids[0]}\\n')\n    sys.stdout.flush()\n"
        "    await boxes.run(Program('while True: pass'), [b''], lambda _: True, lambda: None)\nasyncio.run(main())\n"
    )
    service = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE)
    assert service.stdout is not None
    pid = int(service.stdout.readline())
    await until_async(lambda: len(descendants(pid)) == IDLE + 1)
    inside = [pid, *descendants(pid)]
    service.kill()
    service.wait()
    service.stdout.close()
    await until_async(lambda: not any(Path(f"/proc/{one}").exists() for one in inside))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give sandboxes uids of their own")
async def test_a_service_that_runs_as_root_gives_each_sandbox_a_uid_of_its_own(bench: Bench) -> None:
    boxes = Sandboxes(2, Limits())
    await boxes.start()
    uids = {Path(f"/proc/{pid}").stat().st_uid for top in boxes.pids for pid in (top, *descendants(top))}
    await boxes.close()
    assert uids == {bubblewrap.HOST_UID, bubblewrap.HOST_UID + 1}


async def test_without_bubblewrap_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(ConfigError, match="apt install bubblewrap"):
        await Sandboxes(1, Limits()).start()


async def test_where_namespaces_are_blocked_nothing_starts_and_the_error_names_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        blocked = Path(folder) / "bwrap"
        blocked.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
        blocked.chmod(0o755)
        Path(folder).chmod(0o755)
        monkeypatch.setattr(bubblewrap, "find", lambda: str(blocked))
        with pytest.raises(ConfigError, match=r"No permissions .* kernel.unprivileged_userns_clone = 1"):
            await Sandboxes(1, Limits()).start()


async def test_a_sandbox_that_does_not_isolate_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    real = bubblewrap.command

    def shared(*arguments: object, **words: object) -> list[str]:
        made = real(*arguments, **words)  # type: ignore[arg-type]
        return [*made[:-1], made[-1].replace('"--remount-ro", "/"', '"--bind", "/var", "/var"')]

    monkeypatch.setattr(slot, "command", shared)
    with pytest.raises(ConfigError, match="does not isolate: it lacks no home folders, a read-only system"):
        await Sandboxes(1, Limits()).start()


async def test_further_packages_can_be_imported(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "shapes.py").write_text("def area(a, b): return a * b\n")
    boxes = Sandboxes(1, Limits(), tmp_path / "extra")
    await boxes.start()
    found = []
    await boxes.run(
        Program("import shapes\nprint(shapes.area(2, 3))"), [b""], lambda o: bool(found.append(o)), lambda: None
    )
    assert found[0].output == b"6\n"
    await boxes.close()
