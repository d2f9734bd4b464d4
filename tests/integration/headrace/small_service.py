"""A small real process for the supervisor's tests: /readyz, /api/status from a file, and a chosen way to end."""

import argparse
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--status", type=Path)
    parser.add_argument("--marks", type=Path, help="a line each for start, term and end")
    parser.add_argument("--name", default="small")
    parser.add_argument("--exit-when", type=Path, help="exits 0 once this file exists")
    parser.add_argument("--die-at-start", type=int, default=0, help="with this exit status")
    parser.add_argument("--not-ready-while", type=Path, help="503 while this file exists")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--grandchild", type=Path, help="leaves a child behind; its pid goes here")
    options = parser.parse_args()

    def mark(what: str) -> None:
        if options.marks:
            with options.marks.open("a") as file:
                file.write(f"{options.name} {what} {os.getpid()}\n")

    mark("start")
    if options.die_at_start:
        sys.stderr.write(json.dumps({"event": "refused", "error": "the setting is wrong"}) + "\n")
        os._exit(options.die_at_start)

    class Face(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = options.status.read_bytes() if options.status and "status" in self.path else b"{}"
            waits = options.not_ready_while and options.not_ready_while.exists()
            self.send_response(503 if waits else 200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    def term(*_: object) -> None:
        mark("term")
        if not options.ignore_term:
            mark("end")
            os._exit(0)

    signal.signal(signal.SIGTERM, term)
    if options.grandchild:
        options.grandchild.write_text(str(subprocess.Popen(["sleep", "600"]).pid))
    if options.port:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Face)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    end = time.monotonic() + 600
    while time.monotonic() < end:
        if options.exit_when and options.exit_when.exists():
            mark("end")
            os._exit(0)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
