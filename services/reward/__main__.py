"""Starts the reward service: `python -P -m services.reward --config RUN/config/reward.json`."""

import asyncio

from services.reward.settings import RewardSettings
from wire.entry import end_process, run_service


def main(settings: RewardSettings) -> int:
    """Imports what is heavy, wires everything up, and serves until a signal."""
    from services.reward.app import serve

    return asyncio.run(serve(settings))


if __name__ == "__main__":
    end_process(run_service("reward", RewardSettings, main))
