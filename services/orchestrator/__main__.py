"""Starts the orchestrator: `python -P -m services.orchestrator --config RUN/config/orchestrator.json`."""

import asyncio

from services.orchestrator.settings import OrchestratorSettings
from wire.entry import end_process, run_service


def main(settings: OrchestratorSettings) -> int:
    """Imports what is heavy, wires everything up, and serves until a signal."""
    from services.orchestrator.app import serve

    return asyncio.run(serve(settings))


if __name__ == "__main__":
    end_process(run_service("orchestrator", OrchestratorSettings, main))
