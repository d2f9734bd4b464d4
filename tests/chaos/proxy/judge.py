"""A reward model and a teacher behind HTTP, whose answers take their time until `hurry`."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def score(ids: Sequence[int]) -> float:
    """A number that differs for samples with different tokens, most of the time."""
    return sum(place * one for place, one in enumerate(ids, 1)) % 7 / 10


def logprob(token: int) -> float:
    """The teacher's, of a token wherever it stands."""
    return -1 - token % 5


class Judge:
    """Answers `/classify` as `reward_endpoint` asks it, and `/generate` as `teacher`, in threads of this process."""

    def __init__(self, score: Callable[[Sequence[int]], float]) -> None:
        """`score`: of the tokens of one sample."""
        self.pause_s = 0.4
        """Before each answer, until `hurry`."""
        self.asked = 0
        judge = self

        def scored(body: Any) -> Any:
            return [{"embedding": [score(ids)]} for ids in body["input_ids"]]

        def told(body: Any) -> Any:
            entries = [[logprob(token), token, None] for token in body["input_ids"]]
            return {"meta_info": {"input_token_logprobs": entries, "input_top_logprobs": [[one] for one in entries]}}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                judge.asked += 1
                time.sleep(judge.pause_s)
                answer = json.dumps(told(body) if self.path == "/generate" else scored(body)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *arguments: object) -> None:
                """Prints nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True, name="judge").start()

    def hurry(self) -> None:
        """Ends the slowness."""
        self.pause_s = 0.0

    def stop(self) -> None:
        """Closes its port."""
        self._server.shutdown()
        self._server.server_close()
