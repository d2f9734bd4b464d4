"""A container's health check: `python -m headrace.wire.process.probe [PATH]` asks the service beside it; 0 = healthy.

The default path is `/healthz`. Standard library only: it runs every few seconds, in images that have no curl.
"""

import http.client
import sys
from collections.abc import Sequence

PORT = 8080
"""The HTTP port of every service in a container."""
_TIMEOUT_S = 4.0


def probe(path: str, *, port: int = PORT) -> str:
    """Empty if `path` answers with status 200, else what is wrong."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(500).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return f"{path} at port {port}: {error}"
    finally:
        connection.close()
    return "" if answer.status == http.HTTPStatus.OK else f"{path}: {answer.status} {body}"


def main(arguments: Sequence[str]) -> int:
    """The exit status; what is wrong goes to stderr, where `docker inspect` shows it."""
    problem = probe(arguments[0] if arguments else "/healthz")
    if problem:
        sys.stderr.write(f"{problem}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
