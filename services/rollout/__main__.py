"""Starts one replica: `python -P -m headrace.services.rollout --config RUN/config/rollout-0.json`.

With `--chat` it answers each line of stdin with a model folder, on stdout, to the end of stdin. With `--turns` it
samples turns of episodes with a model folder, at the port that it writes to stdout, until SIGTERM.
"""

import argparse
import asyncio
import sys

from headrace.services.rollout.chat.settings import FolderSettings
from headrace.services.rollout.settings import RolloutSettings
from headrace.wire.process.entry import end_process, run_service


def main(settings: RolloutSettings) -> int:
    """Imports the heavy modules, wires the service up, and serves until a signal."""
    from headrace.services.rollout.app import serve

    return asyncio.run(serve(settings))


def chat(settings: FolderSettings) -> int:
    """Imports the heavy modules, and answers line by line."""
    from headrace.services.rollout.chat_here import chat_here

    asyncio.run(chat_here(settings, sys.stdin, sys.stdout))
    return 0


def turns(settings: FolderSettings) -> int:
    """Imports the heavy modules, and samples turns until a signal."""
    from headrace.services.rollout.turns_once import serve_turns

    return asyncio.run(serve_turns(settings))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--chat", action="store_true")
    parser.add_argument("--turns", action="store_true")
    if parser.parse_known_args()[0].turns:
        end_process(run_service("rollout", FolderSettings, turns))
    if parser.parse_known_args()[0].chat:
        end_process(run_service("rollout", FolderSettings, chat))
    end_process(run_service("rollout", RolloutSettings, main))
