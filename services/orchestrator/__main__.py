"""Starts the orchestrator: `python -P -m services.orchestrator --config RUN/config/orchestrator.json`."""

import asyncio
import sys

from services.orchestrator.settings import OrchestratorSettings
from wire.entry import run_service


def main(settings: OrchestratorSettings) -> int:
    """Imports what is heavy, wires everything up, and serves until a signal."""
    from services.orchestrator.app import serve

    return asyncio.run(serve(settings))


if __name__ == "__main__":
    sys.exit(run_service("orchestrator", OrchestratorSettings, main))
