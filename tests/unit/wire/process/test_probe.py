import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.wire.process.probe import probe


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 503)
        self.end_headers()
        self.wfile.write(b"weights" if self.path == "/readyz" else b"")

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(5)


def test_a_probe_accepts_status_200(port: int) -> None:
    assert probe("/healthz", port=port) == ""


def test_a_probe_reports_any_other_status_with_its_reason(port: int) -> None:
    assert probe("/readyz", port=port) == "/readyz: 503 weights"
