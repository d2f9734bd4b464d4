"""Secrets planted into a run wherever its config takes one, and where they turn up again."""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TABLES = """
[[reward.scorers]]
name = "judge"
weight = 0.0
optional = true
options = {{ url = "{judge}/v1", model = "m", api_key_file = "{folder}/judge", retries = 0, canaries_every = 0 }}
[tracing]
endpoint = "{collector}"
headers_file = "{folder}/otlp"
[trackers]
use = ["wandb"]
wandb = {{ mode = "offline" }}
[rollout.sglang]
api_key_file = "{folder}/sglang"
admin_key_file = "{folder}/sglang-admin"
"""


@dataclass(frozen=True, slots=True)
class Planted:
    """Name -> secret."""

    files: dict[str, str]
    """In a file that the config names."""
    variables: dict[str, str]
    """In the environment of `headrace train`, where only its own user can read it."""

    def all(self) -> list[bytes]:
        return [one.encode() for one in (*self.files.values(), *self.variables.values())]


def plant(folder: Path) -> Planted:
    """Makes the secrets, and writes those that lie in files."""
    folder.mkdir()
    names = ("operator", "judge", "sglang", "sglang-admin")
    files = {name: secrets.token_hex(20) for name in names}
    for name, secret in files.items():
        (folder / name).write_text(secret)
    files["otlp"] = secrets.token_hex(20)
    (folder / "otlp").write_text(f"x-api-key: {files['otlp']}\n")
    variables = {name: secrets.token_hex(20) for name in ("WANDB_API_KEY", "HF_TOKEN", "SEARCH_API_KEY")}
    return Planted(files, variables)


@contextmanager
def telling_judge() -> Iterator[tuple[str, list[str]]]:
    """A judge that refuses each third request in words that hold the key; its URL, and the keys that it was given."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(self.headers["Authorization"])
            message = {"role": "assistant", "content": json.dumps({"reasoning": "because", "score": 5})}
            verdict = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
            refusal = {"error": {"message": f"I do not like {self.headers['Authorization']}"}}
            said = json.dumps(verdict if len(seen) % 3 else refusal).encode()
            self.send_response(200 if len(seen) % 3 else 400)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)
