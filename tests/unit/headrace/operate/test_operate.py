"""The client of the orchestrator's HTTP face: where it asks, and how it says what went wrong."""

import json
import os
from pathlib import Path

import httpx
import pytest

from headrace.operate.client import OrchestratorClient, find_client, read_answer
from headrace.supervisor.lock import RunLock
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import make_tokens
from headrace.wire.errors import ConfigError, TransientError
from headrace.wire.rundir.layout import RunPaths

FACE = OrchestratorClient("http://127.0.0.1:8080")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "run.toml").write_text("")
    return tmp_path


def test_a_live_run_is_asked_at_its_orchestrators_port(run_dir: Path) -> None:
    lock = RunLock(run_dir)
    file = run_dir / "run" / "orchestrator.json"
    for _ in range(2):
        with pytest.raises(ConfigError, match="just starting"):
            find_client(run_dir)
        file.write_text(json.dumps({"pid": 2**30, "http_port": 1234}))  # A dead life's.
    file.write_text(json.dumps({"pid": os.getpid(), "http_port": 4321}))
    assert find_client(run_dir) == OrchestratorClient("http://127.0.0.1:4321")
    given = run_dir / "given"
    given.write_text("the-token-of-another-run")
    assert find_client(run_dir, token_file=given).token == "the-token-of-another-run"
    make_tokens(RunPaths(run_dir).tokens)
    own = (RunPaths(run_dir).tokens / Role.OPERATOR).read_text()
    assert find_client(run_dir).token == find_client(run_dir, token_file=given).token == own
    assert find_client(run_dir, token_file=run_dir / "absent").token == own, "a file that is not needed is not read"
    lock.release()
    with pytest.raises(ConfigError, match=r"no run is alive .* --url"):
        find_client(run_dir)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://host:8080", "http://host:8080"),
        ("host:8080/", "http://host:8080"),
        ("https://host/x?y", "https://host"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_a_url_is_taken_as_its_host(given: str, url: str) -> None:
    assert find_client(None, given).url == url


def test_a_token_goes_along(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret-token-of-ops\n")
    with find_client(None, "http://host:1", file).client() as http:
        assert http.headers["authorization"] == "Bearer s3cret-token-of-ops"
        assert http.headers["origin"] == "http://host:1"
    with pytest.raises(ConfigError, match="cannot be read"):
        find_client(None, "http://host:1", tmp_path / "absent")


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (409, {"error": "the run is finished"}, ConfigError, "the run is finished"),
        (422, {"error": "count: too many"}, ConfigError, "count: too many"),
        (400, {"error": {"message": "n: 1 only"}}, ConfigError, "n: 1 only"),
        (401, {"error": "this needs a token of the run"}, ConfigError, "--token-file .this needs a token of the run"),
        (
            403,
            {"error": "POST /api/x is for operator, not for viewer"},
            ConfigError,
            "--token-file .POST /api/x is for",
        ),
        (401, "Authorization Required", ConfigError, "^http://127.0.0.1:8080 refuses: Authorization Required$"),
        (403, {"error": "not ours"}, ConfigError, "^http://127.0.0.1:8080 refuses: not ours$"),
        (404, {"detail": "Not Found"}, ConfigError, "as new as this command"),
        (404, {"error": "there is no route '/api/x'"}, ConfigError, "as new as this command"),
        (404, {"error": "there is no replica 'x'"}, ConfigError, "there is no replica 'x'"),
        (503, {"error": "the broker is away"}, TransientError, "the broker is away"),
        (502, "<html>", TransientError, "502"),
    ],
)
def test_a_rejection_is_a_user_error_and_an_outage_is_transient(
    status: int, body: object, kind: type[Exception], words: str
) -> None:
    answer = httpx.Response(status, json=body) if not isinstance(body, str) else httpx.Response(status, text=body)
    with pytest.raises(kind, match=words):
        read_answer(FACE, "/api/x", answer)
