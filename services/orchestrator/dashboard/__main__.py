"""Shows a run directory, read-only, to callers with the token of a file:

python -P -m headrace.services.orchestrator.dashboard RUN_DIR --token-file FILE [--port P]
"""

import argparse
import asyncio
from pathlib import Path

from headrace.wire.errors import ConfigError, HeadraceError
from headrace.wire.process.entry import GIVEN_UP, REFUSED, end_process
from headrace.wire.telemetry.logs import configure_logging, get_logger


def main() -> int:
    """Serves until a signal; returns the exit code."""
    from headrace.services.orchestrator.dashboard.serve import serve_dashboard
    from headrace.wire.access.tokens import read_token
    from headrace.wire.http.route_roles import accepted

    parser = argparse.ArgumentParser(prog="headrace.services.orchestrator.dashboard", description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--token-file", type=Path, required=True, help="the token, which only its owner can read")
    parser.add_argument("--port", type=int, default=0, help="0 = a free one, which the log names")
    options = parser.parse_args()
    configure_logging("dashboard", "")
    try:
        roles_of = accepted(None, read_token(options.token_file, "--token-file"))
        return asyncio.run(serve_dashboard(options.run_dir, roles_of, host="127.0.0.1", port=options.port))
    except HeadraceError as error:
        get_logger("dashboard").error("refused", error=str(error))
        return REFUSED if isinstance(error, ConfigError) else GIVEN_UP


if __name__ == "__main__":
    end_process(main())
