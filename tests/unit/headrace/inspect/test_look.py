"""Looking at an orchestrator by its address: what is no orchestrator is named, what does not answer is told."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headrace.inspect.status import look, look_at, look_where
from headrace.supervisor.lock import RunLock
from headrace.wire.errors import ConfigError, TransientError
from tests.status import status_json

heard: list[str | None] = []
"""What the requests had for a token."""


@contextmanager
def serving(body: bytes, status: int = 200) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers["Authorization"])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()


def test_an_orchestrator_anywhere_is_asked() -> None:
    status = status_json(step=4, trainer={"metrics": {"loss": 0.5}})
    with serving(json.dumps(status).encode()) as url:
        shown = look_at(f"{url}/")
    told = shown.as_json()
    assert list(told) == ["url", "services", "orchestrator", "steps", "metrics", "eval", "receipt", "waits"]
    assert json.loads(json.dumps(told))["orchestrator"] == status
    assert shown.steps == 4 and shown.metrics == {"loss": 0.5}
    assert [party.who for party in shown.waits] == ["orchestrator", "trainer", "reward"]


def test_an_orchestrator_of_another_version_is_named_with_the_way_out() -> None:
    status = status_json()
    del status["credit"]["limit"]
    with (
        serving(json.dumps(status).encode()) as url,
        pytest.raises(ConfigError, match=r"credit\.limit: Field required"),
    ):
        look_at(url)
    with serving(json.dumps(status_json() | {"weather": "rain"}).encode()) as url:
        assert look_at(url).steps == 0


@pytest.mark.parametrize(("body", "status"), [(b"<html>", 200), (b"{}", 200), (b"[]", 200), (b"{}", 404)])
def test_what_is_no_orchestrator_is_named(body: bytes, status: int) -> None:
    with serving(body, status) as url, pytest.raises(ConfigError, match="is no orchestrator"):
        look_at(url)


@pytest.mark.parametrize("status", [401, 403])
def test_an_orchestrator_that_wants_another_token_is_no_other_thing(status: int) -> None:
    with (
        serving(b'{"error": "no"}', status) as url,
        pytest.raises(ConfigError, match="give its file with --token-file"),
    ):
        look_at(url, "wrong")


def test_a_token_goes_along() -> None:
    with serving(json.dumps(status_json()).encode()) as url:
        assert look_where(None, url, "a-viewers-token").url == url
    assert heard[-1] == "Bearer a-viewers-token"
    with serving(json.dumps(status_json()).encode()) as url:
        look_where(None, url)
    assert heard[-1] is None


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://host", "http://", "nonsense"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="give an address such as"):
        look_at(url)


def test_nobody_there_is_told() -> None:
    with pytest.raises(TransientError, match="no orchestrator answers"):
        look_at("http://127.0.0.1:1")


def test_one_place_is_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for run_dir, url in ((None, ""), (tmp_path, "http://127.0.0.1:1")):
        with pytest.raises(ConfigError, match="say which run"):
            look_where(run_dir, url)
    with pytest.raises(ConfigError, match="is not a run directory"):
        look_where(tmp_path, "")


def test_without_a_place_it_is_the_one_live_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("dead", "live"):
        (tmp_path / "runs" / name / "config").mkdir(parents=True)
        (tmp_path / "runs" / name / "config" / "run.toml").write_text("[run]\n")
    lock = RunLock(tmp_path / "runs" / "live")
    assert look_where(None, "").run_dir == "runs/live"
    second = RunLock(tmp_path / "runs" / "dead")
    with pytest.raises(ConfigError, match="alive: runs/dead, runs/live"):
        look_where(None, "")
    lock.release()
    second.release()


def test_an_ended_run_is_read_without_its_whole_metrics(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "run.toml").write_text("[run]\n")
    rows = "".join(json.dumps({"step": step, "reward_mean": step / 10}) + "\n" for step in range(1, 2001))
    (tmp_path / "metrics.jsonl").write_text(rows + '{"step": 2001, "rew')
    shown = look(tmp_path)
    assert shown.steps == 2000 and shown.metrics["reward_mean"] == 200.0
    assert shown.supervisor is None and shown.orchestrator is None and shown.waits == []
