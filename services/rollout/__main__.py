"""Starts one replica: `python -P -m services.rollout --config RUN/config/rollout-0.json`.

With `--chat` it answers one chat with a model folder, on stdout, and ends.
"""

import argparse
import asyncio
import json
import sys

from services.rollout.chat_settings import ChatOnceSettings
from services.rollout.settings import RolloutSettings
from wire.entry import end_process, run_service


def main(settings: RolloutSettings) -> int:
    """Imports what is heavy, wires everything up, and serves until a signal."""
    from services.rollout.app import serve

    return asyncio.run(serve(settings))


def chat(settings: ChatOnceSettings) -> int:
    """Imports what is heavy, and tells the answer as one JSON line."""
    from services.rollout.chat_once import chat_once

    sys.stdout.write(json.dumps(asyncio.run(chat_once(settings))) + "\n")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--chat", action="store_true")
    if parser.parse_known_args()[0].chat:
        end_process(run_service("rollout", ChatOnceSettings, chat))
    end_process(run_service("rollout", RolloutSettings, main))
