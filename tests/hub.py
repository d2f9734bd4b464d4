"""A Hub of one's own: the four routes that `huggingface_hub` asks when it fetches a model, over real HTTP."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Hub:
    """Serves folders as models; `token` gates them."""

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.models: dict[str, dict[str, Path]] = {}
        """Id -> revision (also a commit) -> folder."""
        self.asked: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub._answer(self, body=True)

            def do_HEAD(self) -> None:
                hub._answer(self, body=False)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def put(self, name: str, folder: Path, *revisions: str) -> str:
        """Publishes a folder; returns its commit."""
        content = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        commit = hashlib.sha1(content).hexdigest()
        for revision in (*revisions, commit):
            self.models.setdefault(name, {})[revision] = folder
        return commit

    def close(self) -> None:
        """Nobody answers from now on."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def environment(self, home: Path) -> dict[str, str]:
        """What makes `huggingface_hub` ask this one."""
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}

    def _answer(self, request: BaseHTTPRequestHandler, *, body: bool) -> None:
        path = request.path.partition("?")[0].strip("/")
        self.asked.append(path)
        words = path.removeprefix("api/models/").split("/")
        name, kind, rest = "/".join(words[:2]), words[2] if len(words) > 2 else "", words[3:]
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return _send(request, 401, {"x-error-code": "GatedRepo", "x-error-message": "Access is restricted."})
        if name not in self.models:
            return _send(request, 404, {"x-error-code": "RepoNotFound", "x-error-message": "Repository not found"})
        folder = self.models[name].get(rest[0] if rest else "main")
        if folder is None:
            return _send(request, 404, {"x-error-code": "RevisionNotFound", "x-error-message": "Invalid rev id"})
        commit = self.put(name, folder)
        if kind == "resolve":
            return _send_file(request, folder / rest[1], commit, body=body)
        files = sorted(one for one in folder.iterdir() if one.is_file())
        tree = [{"type": "file", "path": one.name, "size": one.stat().st_size, "oid": _oid(one)} for one in files]
        found = tree if kind == "tree" else {"id": name, "sha": commit, "siblings": []}
        return _send(request, 200, {"content-type": "application/json"}, json.dumps(found).encode())


@contextmanager
def running(token: str = "") -> Iterator[Hub]:
    """One for a test."""
    hub = Hub(token)
    try:
        yield hub
    finally:
        hub.close()


def _oid(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()


def _send_file(request: BaseHTTPRequestHandler, file: Path, commit: str, *, body: bool) -> None:
    if not file.is_file():
        return _send(request, 404, {"x-error-code": "EntryNotFound"})
    headers = {"x-repo-commit": commit, "etag": f'"{_oid(file)}"', "content-length": str(file.stat().st_size)}
    return _send(request, 200, headers, file.read_bytes() if body else b"", length=False)


def _send(
    request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes = b"", *, length: bool = True
) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    if length:
        request.send_header("content-length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
