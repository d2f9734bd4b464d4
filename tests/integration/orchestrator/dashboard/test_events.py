"""The feed of a served run: it resumes where a client was, also after the server has died, and holds no shutdown up."""

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.supervisor.once import child_environment, python
from headrace.supervisor.ports import pick_ports
from headrace.wire.process.environment import inherited
from tests.dashboard_run import write_metrics, write_run
from tests.http_tokens import bearer_of, made_for

STEPS = 50
_READY_S = 60


class Server:
    """`python -P -m headrace.services.orchestrator.dashboard`, killed and started at will on one port."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.port = run_dir, pick_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        argv = python("headrace.services.orchestrator.dashboard", str(self.run_dir), "--port", str(self.port))
        argv += ("--token-file", str(made_for(self.run_dir.parent, self.url)))
        with (self.run_dir / "log").open("ab") as log:
            self.child = subprocess.Popen(argv, env=child_environment(inherited(), threads=1), stdout=log, stderr=log)
        end = time.monotonic() + _READY_S
        while time.monotonic() < end:
            assert self.child.poll() is None, (self.run_dir / "log").read_text()
            try:
                if httpx.get(f"{self.url}/readyz", trust_env=False).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError((self.run_dir / "log").read_text())

    def end(self, number: int) -> None:
        """Sends the signal and waits for the end."""
        assert self.child is not None
        self.child.send_signal(number)
        self.child.wait(60)

    def request(self, target: str) -> bytes:
        """A request in its bytes."""
        head = bearer_of(self.url) | {"Host": f"127.0.0.1:{self.port}"}
        return "".join(
            [f"GET {target} HTTP/1.1\r\n", *(f"{key}: {value}\r\n" for key, value in head.items()), "\r\n"]
        ).encode()

    def events(self, after: int | None) -> Iterator[tuple[str, str, str]]:
        """(id, kind, data), until the stream ends."""
        headers = bearer_of(self.url) | ({} if after is None else {"Last-Event-ID": f"s{after}"})
        with (
            httpx.Client(trust_env=False, timeout=20) as http,
            http.stream("GET", f"{self.url}/api/events", headers=headers) as answer,
        ):
            assert answer.headers["content-type"].startswith("text/event-stream")
            known: dict[str, str] = {}
            for line in answer.iter_lines():
                if line:
                    key, _, value = line.partition(": ")
                    known[key] = value
                elif "event" in known:
                    yield known.get("id", ""), known["event"], known["data"]
                    known = {}

    def steps(self, after: int | None, count: int) -> list[int]:
        """The next steps that a client hears."""
        heard: list[int] = []
        for name, kind, data in self.events(after):
            if kind == "step":
                assert name == f"s{json.loads(data)['step']}"
                heard.append(json.loads(data)["step"])
                if len(heard) == count:
                    break
        return heard


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(write_run(tmp_path_factory.mktemp("runs") / "run", steps=STEPS, rollouts=0))
    yield made
    if made.child is not None and made.child.poll() is None:
        made.child.kill()
        made.child.wait(10)


@pytest.fixture
def server(served: Server) -> Server:
    """Alive; each start takes seconds, so tests share it."""
    if served.child is None or served.child.poll() is not None:
        served.start()
    return served


def test_no_more_than_so_many_listen(server: Server) -> None:
    held = []
    refused = 0
    for _ in range(70):
        one = socket.create_connection(("127.0.0.1", server.port))
        one.settimeout(10)
        one.sendall(server.request("/api/events"))
        head = one.recv(12).decode()
        refused += head.endswith("503")
        held.append(one)
    assert 1 <= refused <= 6
    for one in held:
        one.close()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            assert server.steps(STEPS - 1, 1) == [STEPS]
            return
        except AssertionError:
            time.sleep(0.2)  # The server has not seen yet that they left.
    raise AssertionError("clients that left keep their places")


def test_a_client_resumes_where_it_was_also_after_the_server_has_died(server: Server) -> None:
    assert server.steps(STEPS - 3, 3) == [48, 49, 50]
    server.end(signal.SIGKILL)
    write_metrics(server.run_dir / "metrics.jsonl", range(STEPS + 1, STEPS + 4), add=True)
    server.start()
    assert server.steps(STEPS, 3) == [51, 52, 53]


def test_clients_that_listen_or_have_stopped_reading_do_not_hold_the_end_up(server: Server) -> None:
    stuck = []
    for _ in range(3):
        one = socket.create_connection(("127.0.0.1", server.port))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(server.request("/api/events?after=s1"))
        stuck.append(one)
    listening = server.events(None)
    assert next(listening)[1] == "status"
    server.end(signal.SIGTERM)  # Streams have no end of their own.
    assert server.child is not None and server.child.returncode == 0
    for one in stuck:
        one.close()
