"""Starts the environment service: `python -P -m headrace.services.environment --config RUN/config/environment.json`.

With `--check` it only loads the user's code in a child: a dry run asks whether it can be played.
"""

import argparse
import asyncio

from headrace.services.environment.settings import EnvironmentSettings
from headrace.wire.entry import end_process, run_service


def main(settings: EnvironmentSettings) -> int:
    """Imports what is heavy, wires everything up, and serves until a signal."""
    from headrace.services.environment.app import serve

    return asyncio.run(serve(settings))


def check(settings: EnvironmentSettings) -> int:
    """Loads the environment as an episode would."""
    from headrace.services.environment.check import check as load

    return asyncio.run(load(settings))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_known_args()[0]
    end_process(run_service("environment", EnvironmentSettings, check if asked.check else main))
