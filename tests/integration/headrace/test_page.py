"""`serve_page`: a page's server that lives until Ctrl-C."""

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


def test_ctrl_c_while_the_browser_opens_is_the_end_as_it_was_told(tmp_path):
    port, said = free_port(), []

    def ready():
        said.append("the address")
        raise KeyboardInterrupt

    serve_page([sys.executable, "-c", SERVER, str(port)], port, tmp_path / "log", {}, ready)
    assert said == ["the address"]
