"""Starts the environment service: `python -P -m headrace.services.environment --config RUN/config/environment.json`.

With `--check` it only loads the user's code in a child: a start asks whether it can be played. With `--play` it plays
one episode, and writes it as a JSON line. `--code` names a copy of that code which is not yet the run's.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from headrace.services.environment.identity import with_copied_code
from headrace.services.environment.settings import EnvironmentSettings, PlayOnceSettings
from headrace.wire.process.entry import end_process, run_service


def main(settings: EnvironmentSettings) -> int:
    """Imports what is heavy, wires everything up, and serves until a signal."""
    from headrace.services.environment.app import serve

    return asyncio.run(serve(with_copied_code(settings)))


def check(settings: EnvironmentSettings) -> int:
    """Loads the environment as an episode would."""
    from headrace.services.environment.check import check as load

    return asyncio.run(load(with_copied_code(settings, _options().code)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--play", action="store_true")
    parser.add_argument("--code", type=Path)
    return parser.parse_known_args()[0]


def play(settings: PlayOnceSettings) -> int:
    """Plays one episode."""
    from headrace.services.environment.play_once import play_once

    sys.stdout.write(json.dumps(asyncio.run(play_once(with_copied_code(settings)))) + "\n")
    return 0


if __name__ == "__main__":
    asked = _options()
    if asked.play:
        end_process(run_service("environment", PlayOnceSettings, play))
    end_process(run_service("environment", EnvironmentSettings, check if asked.check else main))
