"""Starts the reward service: `python -P -m services.reward --config RUN/config/reward.json`."""

import asyncio
import sys

from services.reward.settings import RewardSettings
from wire.entry import run_service


def main(settings: RewardSettings) -> int:
    """Imports what is heavy, wires everything up, and serves until a signal."""
    from services.reward.app import serve

    return asyncio.run(serve(settings))


if __name__ == "__main__":
    sys.exit(run_service("reward", RewardSettings, main))
