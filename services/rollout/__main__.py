"""Starts one replica: `python -P -m services.rollout --config RUN/config/rollout-0.json`."""

import asyncio

from services.rollout.settings import RolloutSettings
from wire.entry import end_process, run_service


def main(settings: RolloutSettings) -> int:
    """Imports what is heavy, wires everything up, and serves until a signal."""
    from services.rollout.app import serve

    return asyncio.run(serve(settings))


if __name__ == "__main__":
    end_process(run_service("rollout", RolloutSettings, main))
