"""Starts the reward service: `python -P -m headrace.services.reward --config RUN/config/reward.json`.

With `--check` it only looks at scorers and data: a dry run asks whether they fit. With `--score IN --output OUT` it
scores a file and ends.
"""

import argparse
import asyncio
from pathlib import Path

from headrace.services.reward.settings import RewardSettings
from headrace.wire.process.entry import end_process, run_service


def main(settings: RewardSettings) -> int:
    """Imports what is heavy, wires everything up, and serves until a signal."""
    from headrace.services.reward.app import serve

    return asyncio.run(serve(settings))


def check(settings: RewardSettings) -> int:
    """Loads the scorers and holds the prepared rows against them."""
    from headrace.services.reward.check import check as check_rows

    return check_rows(settings)


def score(settings: RewardSettings) -> int:
    """Scores the file of the command line."""
    from headrace.services.reward.app import make_rubrics
    from headrace.services.reward.file_scores import run

    rubrics = make_rubrics(settings)
    return asyncio.run(run(rubrics, asked.score, asked.output, concurrency=settings.reward.concurrency))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--score", type=Path)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_known_args()[0]
    end_process(run_service("reward", RewardSettings, check if asked.check else score if asked.score else main))
