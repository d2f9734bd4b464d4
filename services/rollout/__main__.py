"""Starts one replica: `python -P -m headrace.services.rollout --config RUN/config/rollout-0.json`.

With `--chat` it answers one chat with a model folder, on stdout, and exits. With `--turns` it samples turns of episodes
with a model folder, at the port that it writes to stdout, until SIGTERM.
"""

import argparse
import asyncio
import json
import sys

from headrace.services.rollout.chat.settings import ChatOnceSettings, TurnsOnceSettings
from headrace.services.rollout.settings import RolloutSettings
from headrace.wire.process.entry import end_process, run_service


def main(settings: RolloutSettings) -> int:
    """Imports the heavy modules, wires the service up, and serves until a signal."""
    from headrace.services.rollout.app import serve

    return asyncio.run(serve(settings))


def chat(settings: ChatOnceSettings) -> int:
    """Imports the heavy modules, and writes the answer as one JSON line."""
    from headrace.services.rollout.chat_once import chat_once

    sys.stdout.write(json.dumps(asyncio.run(chat_once(settings))) + "\n")
    return 0


def turns(settings: TurnsOnceSettings) -> int:
    """Imports the heavy modules, and samples turns until a signal."""
    from headrace.services.rollout.turns_once import serve_turns

    return asyncio.run(serve_turns(settings))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--chat", action="store_true")
    parser.add_argument("--turns", action="store_true")
    if parser.parse_known_args()[0].turns:
        end_process(run_service("rollout", TurnsOnceSettings, turns))
    if parser.parse_known_args()[0].chat:
        end_process(run_service("rollout", ChatOnceSettings, chat))
    end_process(run_service("rollout", RolloutSettings, main))
