"""Looking at a run: by its orchestrator's address, or by its directory with the right token."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headrace.cli.status import status
from headrace.cli.watch import end_of, line_of
from headrace.inspect.status import look, look_where
from headrace.operate.page import live_address
from headrace.supervisor.lock import RunLock
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import make_tokens, token_of
from headrace.wire.errors import ConfigError
from headrace.wire.rundir.layout import RunPaths
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
        shown = look_where(None, f"{url}/")
    told = shown.as_json()
    assert list(told) == ["url", "services", "orchestrator", "steps", "metrics", "eval", "receipt", "waits"]
    assert json.loads(json.dumps(told))["orchestrator"] == status
    assert shown.steps == 4 and shown.metrics == {"loss": 0.5}
    assert [party.who for party in shown.waits] == ["orchestrator", "trainer", "reward"]


@pytest.mark.parametrize("body", [b"{}", b"[]"])
def test_a_server_that_is_not_an_orchestrator_is_named(body: bytes) -> None:
    with serving(body) as url, pytest.raises(ConfigError, match="is no orchestrator"):
        look_where(None, url)


def test_exactly_one_place_must_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="say which run"):
        look_where(None, "")
    with pytest.raises(ConfigError, match="either a run directory or --url"):
        look_where(tmp_path, "http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="is not a run directory"):
        look_where(tmp_path, "")


def test_a_run_is_known_before_it_has_a_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RunLock(tmp_path)
    lock.record(doing="the supervised stage, step 40 of at most 400", more="x" * 100)
    lock.record(doing="the supervised stage, step 50 of at most 400")
    said = "being prepared: the supervised stage, step 50 of at most 400"
    status(tmp_path)
    assert f"{tmp_path}: {said} (pid {os.getpid()}), 0 steps done" in capsys.readouterr().out.replace("\n", "")
    assert line_of(look(tmp_path), 0.0).endswith(said) and end_of(look(tmp_path)) is None

    def begin(_seconds: float) -> None:
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "run.toml").write_text("[run]\n")
        (tmp_path / "run" / "orchestrator.json").write_text(json.dumps({"pid": os.getpid(), "http_port": 4321}))

    monkeypatch.setattr(time, "sleep", begin)
    assert live_address(tmp_path) == "http://127.0.0.1:4321"
    lock.release()


def test_without_a_place_the_only_live_run_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_live_run_is_asked_with_its_own_token_or_else_with_the_given_one(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "run.toml").write_text("[run]\n")
    absent, given = tmp_path / "absent", tmp_path / "given"
    given.write_text("given-token-of-ops")
    assert look(tmp_path, absent).orchestrator is None
    lock = RunLock(tmp_path)
    place, tokens = tmp_path / "run" / "orchestrator.json", RunPaths(tmp_path).tokens
    with serving(json.dumps(status_json(step=4)).encode()) as url:
        place.write_text(json.dumps({"pid": 1, "http_port": int(url.rpartition(":")[2])}))
        shown = look_where(tmp_path, "", given)
        assert (shown.orchestrator is not None, shown.refused, heard[-1]) == (
            True,
            "",
            "Bearer given-token-of-ops",
        )
        make_tokens(tokens)
        shown = look(tmp_path, absent)
        assert shown.orchestrator is not None and heard[-1] == f"Bearer {token_of(tokens, Role.VIEWER)}"
    lock.release()


def test_a_live_run_whose_tokens_cannot_be_read_is_shown_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "run.toml").write_text("[run]\n")
    lock = RunLock(tmp_path)
    with serving(b'{"error": "this needs a token of the run"}', 401) as url:
        place = {"pid": 1, "http_port": int(url.rpartition(":")[2])}
        (tmp_path / "run" / "orchestrator.json").write_text(json.dumps(place))
        status(tmp_path, json=True)
        said = capsys.readouterr()
        assert heard[-1] is None and json.loads(said.out)["orchestrator"] is None
        assert said.err.startswith(f"the viewer's token in {RunPaths(tmp_path).tokens} cannot be read: ")
        assert "--token-file (this needs a token of the run)" in said.err
        make_tokens(RunPaths(tmp_path).tokens)
        assert "does not open its status" in look(tmp_path).refused
        shown = look(tmp_path)
        assert shown.refused in line_of(shown, 0.0)
    lock.release()


def test_an_ended_run_is_read_without_its_whole_metrics(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "run.toml").write_text("[run]\n")
    rows = "".join(json.dumps({"step": step, "reward_mean": step / 10}) + "\n" for step in range(1, 2001))
    (tmp_path / "metrics.jsonl").write_text(rows + '{"step": 2001, "rew')
    shown = look(tmp_path)
    assert shown.steps == 2000 and shown.metrics["reward_mean"] == 200.0
    assert shown.supervisor is None and shown.orchestrator is None and shown.waits == []
