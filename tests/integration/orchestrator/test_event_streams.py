"""Streams of events, which have no end of their own, do not delay the end of a served run."""

import socket
from pathlib import Path

import httpx

from tests.dashboard_run import write_run
from tests.e2e.dashboard.shown import Shown
from tests.http_tokens import bearer_of


def test_connected_or_stalled_clients_do_not_delay_shutdown(tmp_path: Path) -> None:
    shown = Shown(write_run(tmp_path / "run", steps=50, rollouts=0))
    shown.start()
    try:
        head = {"Host": f"127.0.0.1:{shown.port}", **bearer_of(shown.url)}
        lines = ["GET /api/events?after=s1 HTTP/1.1", *(f"{key}: {value}" for key, value in head.items()), "", ""]
        stuck = [socket.create_connection(("127.0.0.1", shown.port)) for _ in range(3)]
        for one in stuck:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall("\r\n".join(lines).encode())
        with httpx.stream("GET", f"{shown.url}/api/events", headers=bearer_of(shown.url), trust_env=False) as answer:
            assert next(answer.iter_lines()).startswith("retry")
            shown.stop()  # A SIGTERM; it raises unless the process ends.
        assert shown._child is not None and shown._child.returncode == 0
        for one in stuck:
            one.close()
    finally:
        shown.kill()
