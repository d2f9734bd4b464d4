"""A page's server that lives until Ctrl-C, and the browser that is opened on it."""

import os
import subprocess
import sys

from headrace.operate.page import serve_page
from tests.ports import free_port

SERVER = """
import http.server, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ready).serve_forever()
"""


def test_ctrl_c_while_the_browser_opens_ends_the_dashboard_cleanly(tmp_path):
    port, said = free_port(), []

    def ready():
        said.append("the address")
        raise KeyboardInterrupt

    serve_page([sys.executable, "-c", SERVER, str(port)], port, tmp_path / "log", {}, ready)
    assert said == ["the address"]


BROWSER = """#!/bin/sh
echo "$@" > {folder}/arguments.aside
cp "${{1#file://}}" {folder}/shown
mv {folder}/arguments.aside {folder}/arguments
"""
OPEN = """
import sys
from pathlib import Path
from headrace.operate.page import link_of, open_in_browser
open_in_browser(link_of("http://127.0.0.1:8080/", sys.stdin.read()), Path(sys.argv[1]))
"""


def test_the_command_line_of_a_browser_that_is_opened_shows_no_token(tmp_path):
    program, folder = tmp_path / "browser", tmp_path / "opened"
    program.write_text(BROWSER.format(folder=tmp_path))
    program.chmod(0o755)
    folder.mkdir()
    words = [sys.executable, "-c", OPEN, str(folder)]
    env = {**os.environ, "BROWSER": f"{program} %s"}
    subprocess.run(words, env=env, input="a-token-of-operators", text=True, timeout=60, check=True)
    assert "a-token-of-operators" not in (tmp_path / "arguments").read_text()
    assert 'content="0; url=http://127.0.0.1:8080/#token=a-token-of-operators"' in (tmp_path / "shown").read_text()
    assert (folder / "open.html").stat().st_mode & 0o777 == 0o600
