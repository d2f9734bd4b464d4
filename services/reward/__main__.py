"""Starts the reward service: `python -P -m services.reward --config RUN/config/reward.json`.

With `--check` it only looks at scorers and data: a dry run asks whether they fit.
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
    """Loads the scorers and holds the prepared rows against them."""
    from services.reward.check import check as check_rows

    return check_rows(settings)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--check", action="store_true")
    end_process(run_service("reward", RewardSettings, check if parser.parse_known_args()[0].check else main))
