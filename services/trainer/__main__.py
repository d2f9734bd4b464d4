"""Starts the trainer: `python -P -m services.trainer [--stage STAGE] --config RUN/config/trainer.json`.

With `--write-base` it only writes what the engines of a QLoRA run merge adapters into, with `--export` the model of a
checkpoint; with `--replay` it trains batches of a journal again. `--stopped-code N` is the exit code when a signal ends
training before its last step; 0 else.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from services.trainer.export_settings import ExportSettings
from services.trainer.settings import TrainerSettings
from services.trainer.stage_settings import StageSettings
from services.trainer.stages.replay_settings import ReplaySettings
from wire.entry import end_process, run_service
from wire.telemetry import get_logger

if TYPE_CHECKING:
    from services.trainer.place import Place
    from services.trainer.stop import StopSignal


def run_rl(settings: TrainerSettings) -> int:
    """Imports what is heavy and runs the RL stage until `max_steps` or a signal."""
    from services.trainer.stages.follower import run_follower
    from services.trainer.stages.rl import RlStage
    from wire.streams.redis import RedisBroker

    def run(place: "Place", stop: "StopSignal") -> int:
        if place.rank:
            return run_follower(settings, place, stop)
        return RlStage(settings, lambda: RedisBroker(settings.broker.url, settings.run.id), stop).run()

    return _run_ranks(settings, run)


def run_stage(settings: StageSettings) -> int:
    """Imports what is heavy and runs a stage on given examples to its end or a signal."""
    from services.trainer.stages.offline_ranks import run_offline

    return _run_ranks(settings, lambda place, stop: run_offline(settings, place, stop))


def run_replay(settings: ReplaySettings) -> int:
    """Imports what is heavy and trains journaled batches again."""
    from services.trainer.stages.follower import run_follower
    from services.trainer.stages.replay import Replay

    def run(place: "Place", stop: "StopSignal") -> int:
        return run_follower(settings, place, stop) if place.rank else Replay(settings, stop).run()

    return _run_ranks(settings, run)


def _run_ranks(settings: TrainerSettings | StageSettings, run: "Callable[[Place, StopSignal], int]") -> int:
    """Runs this process's part of the training to its end or a signal; returns the exit code."""
    from services.trainer.place import settle_place
    from services.trainer.stop import StoppedError, StopSignal

    place = settle_place(settings, sys.argv[1:])
    stop = StopSignal()
    stop.install()
    try:
        code = run(place, stop)
    except StoppedError as error:
        get_logger("trainer").info("stopped", reason=str(error))
        code = 0
    # Whoever keeps a machine's part alive looks at its first process, which takes another code of a child for a death.
    return _options().stopped_code if stop.signalled and place.first and not code else code


def write_export(settings: ExportSettings) -> int:
    """Imports what is heavy, writes the model of a checkpoint, and tells on stdout where it lies."""
    from services.trainer.checkpoint_export import export_checkpoint

    sys.stdout.write(json.dumps(asdict(export_checkpoint(settings))) + "\n")
    return 0


def write_base(settings: TrainerSettings) -> int:
    """Imports what is heavy and writes RUN/base."""
    from services.trainer.engine_base import write_engine_base

    write_engine_base(settings)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--stage", choices=("rl", "sft", "reward_model", "dpo"), default="rl")
    parser.add_argument("--write-base", action="store_true")
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--export", action="store_true")
    # A Job takes 0 for the end of the run, also from a pod that was only moved to another node.
    parser.add_argument("--stopped-code", type=int, default=0)
    return parser.parse_known_args()[0]


def main() -> int:
    """Chooses the stage."""
    asked = _options()
    if asked.replay:
        return run_service("trainer", ReplaySettings, run_replay)
    if asked.export:
        return run_service("trainer", ExportSettings, write_export)
    if asked.stage != "rl":
        return run_service("trainer", StageSettings, run_stage)
    if asked.write_base:
        return run_service("trainer", TrainerSettings, write_base)
    return run_service("trainer", TrainerSettings, run_rl)


if __name__ == "__main__":
    end_process(main())
