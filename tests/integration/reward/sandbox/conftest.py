"""Sandboxes for the tests of this folder. Where none can be, the tests are skipped, aloud; with
HEADRACE_REQUIRE_SANDBOX=1 they fail instead."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.services.reward.sandbox import Limits, Program, Sandboxes, SandboxOutcome
from headrace.services.reward.sandbox.inside.plain import encode
from headrace.services.reward.scorer import Context, Sample, Verdict
from headrace.services.reward.scorers.code.scorer import CodeOptions, CodeScorer
from headrace.wire.errors import ConfigError
from tests.waiting import until_async


class Recorded(Sandboxes):
    """Sandboxes that note what each program was charged."""

    spent_s: dict[str, float]
    """By source: of its last run, all tests together."""

    async def run(
        self,
        program: Program,
        inputs: Sequence[bytes],
        go_on: Callable[[SandboxOutcome], bool],
        begin: Callable[[], None],
    ) -> None:
        spent = 0.0

        def see(outcome: SandboxOutcome) -> bool:
            nonlocal spent
            spent += outcome.spent_s
            self.spent_s[program.source.strip()] = spent
            return go_on(outcome)

        await super().run(program, inputs, see, begin)


@dataclass
class Bench:
    """Sandboxes, and ways to use them."""

    boxes: Recorded
    scorer: CodeScorer

    async def run(self, source: str, *inputs: str, function: str | None = None) -> list[SandboxOutcome]:
        """The outcomes of all inputs: texts, or with `function` values that are its only argument."""
        given = [text.encode() if function is None else encode([text]).encode() for text in inputs]
        found: list[SandboxOutcome] = []

        def keep(outcome: SandboxOutcome) -> bool:
            found.append(outcome)
            return True

        await self.boxes.run(Program(source, function), given, keep, lambda: None)
        return found

    async def score(self, source: str, tests: object) -> Verdict:
        """Asked again while the machine was too busy to tell: that says nothing of the program."""
        for _ in range(10):
            (verdict,) = await self.scorer.score([sample(source, tests)])
            if "too busy" not in verdict.reason:
                break
        return verdict


def sample(source: str, tests: object) -> Sample:
    return Sample(prompt="", completion=f"```python\n{source}\n```", columns={"tests": tests})


def descendants(root: int) -> list[int]:
    """Processes below this one."""
    try:
        children = Path(f"/proc/{root}/task/{root}/children").read_text().split()
    except OSError:  # It has just ended.
        return []
    return [pid for child in map(int, children) for pid in (child, *descendants(child))]


async def end_sandbox(pid: int) -> None:
    """From outside. Returns when nothing of it is left: on a busy machine it could serve one more test before."""
    inside = descendants(pid)
    os.kill(pid, signal.SIGKILL)
    await until_async(lambda: not any(Path(f"/proc/{one}").exists() for one in inside))


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    boxes = Recorded(2, Limits())
    boxes.spent_s = {}
    try:
        asyncio.run(boxes.start())
    except ConfigError as error:
        if os.environ.get("HEADRACE_REQUIRE_SANDBOX") == "1":
            pytest.fail(f"HEADRACE_REQUIRE_SANDBOX=1, but {error}")
        pytest.skip(f"NO SANDBOX, nothing of it is tested here: {error}")
    yield Bench(boxes, CodeScorer(CodeOptions(), Context(component="code", processes=2), boxes))
    asyncio.run(boxes.close())


@dataclass
class Host:
    """Things of the host that no program may see or harm."""

    secret: str
    file: Path
    port: int
    abstract: str
    process: subprocess.Popen[bytes]
    visits: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    secret = "the-answer-is-4242"
    file = tmp_path_factory.mktemp("host") / "secret.txt"
    file.write_text(secret)
    for folder in (file, *list(file.parents)[:2]):
        folder.chmod(0o755)
    victim = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    # Under the uid of the first sandbox, so that only its namespaces protect it.
    user = {"user": 64000, "group": 64000, "extra_groups": []} if os.geteuid() == 0 else {}
    if os.geteuid() == 0:
        victim = ["/bin/sleep", "600"]
    process = subprocess.Popen(victim, env={"SECRET": secret}, cwd="/", **user)
    tcp, unix = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    abstract = f"headrace-test-listener-{os.getpid()}"
    unix.bind(f"\0{abstract}")
    unix.listen()
    found = Host(secret, file, tcp.getsockname()[1], abstract, process)
    listeners = [threading.Thread(target=_listen, args=(one, found.visits), daemon=True) for one in (tcp, unix)]
    for listener in listeners:
        listener.start()
    yield found
    process.kill()
    process.wait()
    for one in (tcp, unix):
        one.shutdown(socket.SHUT_RDWR)
        one.close()


def _listen(listener: socket.socket, visits: list[str]) -> None:
    while True:
        try:
            visitor, _ = listener.accept()
        except OSError:
            return
        visits.append(str(listener.getsockname()))
        visitor.close()
