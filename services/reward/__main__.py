"""Starts the reward service: `python -P -m services.reward --config RUN/config/reward.json`.

With `--check` it only loads the scorers: a dry run asks whether they are there and take their options.
"""

import argparse
import asyncio

from services.reward.settings import RewardSettings
from wire.entry import end_process, run_service


def main(settings: RewardSettings) -> int:
    """Imports what is heavy, wires everything up, and serves until a signal."""
    from services.reward.app import serve

    return asyncio.run(serve(settings))


def check(settings: RewardSettings) -> int:
    """Loads the scorers; raises ConfigError for one that cannot be loaded."""
    from services.reward.app import load_rubric

    load_rubric(settings)
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--check", action="store_true")
    end_process(run_service("reward", RewardSettings, check if parser.parse_known_args()[0].check else main))
