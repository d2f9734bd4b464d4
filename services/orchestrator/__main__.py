"""Starts the orchestrator: `python -P -m headrace.services.orchestrator --config RUN/config/orchestrator.json`.

With `--annotate` it serves only the pages of a run that has ended, and records annotators' votes. With `--token-file`
the token in that file is the annotators': no other is accepted, and none is made in the run directory.
"""

import argparse
import asyncio
from pathlib import Path

from headrace.services.orchestrator.settings import OrchestratorSettings
from headrace.wire.access import process as process_access
from headrace.wire.access.roles import Role
from headrace.wire.access.tokens import read_token
from headrace.wire.process.entry import end_process, run_service


def main(settings: OrchestratorSettings) -> int:
    """Imports the heavy modules, wires the service up, and serves until a signal."""
    from headrace.services.orchestrator.app import serve

    return asyncio.run(serve(settings))


def annotate(settings: OrchestratorSettings) -> int:
    """Serves the pages; the run's own address and ports are not used."""
    from headrace.services.orchestrator.dashboard.serve import serve_dashboard
    from headrace.wire.http.route_roles import accepted

    options = _options()
    # A run directory may have been moved since its settings were written.
    run_dir = options.run_dir or settings.run_dir
    if options.token_file is None:
        roles_of = accepted(process_access.current(), read_token(settings.orchestrator.operator_token_file))
    else:
        roles_of = accepted(None, read_token(options.token_file, "--token-file"), Role.ANNOTATOR)
    return asyncio.run(serve_dashboard(run_dir, roles_of, host="127.0.0.1", port=options.port, takes_votes=True))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--annotate", action="store_true")
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--port", type=int, default=0)
    return parser.parse_known_args()[0]


if __name__ == "__main__":
    end_process(run_service("orchestrator", OrchestratorSettings, annotate if _options().annotate else main))
