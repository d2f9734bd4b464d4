"""Starts the trainer: `python -P -m headrace.services.trainer [--stage STAGE] --config RUN/config/trainer.json`.

With `--check-algorithm` it only calls the user's own functions (`--code FOLDER`: of a copy that is not yet the run's),
with `--write-base` it writes what the engines of a QLoRA run merge adapters into, with `--export` the model of a
checkpoint; with `--replay` it trains batches of a journal again. The exit code when a signal ends training before its
last step is `--stopped-code N`, and when an operator of the run does `--operator-code N`; 0 else.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.services.trainer.config.export import ExportSettings
from headrace.services.trainer.config.replay import ReplaySettings
from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.settings import TrainerSettings
from headrace.wire.access.exposure import collectives_leave
from headrace.wire.process.entry import end_process, run_service
from headrace.wire.telemetry.logs import get_logger

if TYPE_CHECKING:
    from headrace.services.trainer.distributed.stop import StopSignal, TrainingEnd
    from headrace.services.trainer.distributed.topology import RankTopology


def run_rl(settings: TrainerSettings) -> int:
    """Imports what is heavy and runs the RL stage until `max_steps` or a signal."""
    from headrace.services.trainer.stages.follower import run_follower
    from headrace.services.trainer.stages.rl import RlStage
    from headrace.wire.streams.redis import RedisBroker

    def run(place: "RankTopology", stop: "StopSignal") -> "TrainingEnd":
        if place.rank:
            return run_follower(settings, place, stop)
        return RlStage(settings, lambda: RedisBroker(settings.broker.url, settings.run.id), stop).run()

    return _run_ranks(settings, run)


def run_stage(settings: StageSettings) -> int:
    """Imports what is heavy and runs a stage on given examples to its end or a signal."""
    from headrace.services.trainer.stages.offline.ranks import run_offline

    return _run_ranks(settings, lambda place, stop: run_offline(settings, place, stop))


def run_replay(settings: ReplaySettings) -> int:
    """Imports what is heavy and trains journaled batches again."""
    from headrace.services.trainer.stages.follower import run_follower
    from headrace.services.trainer.stages.replay.replay import Replay

    def run(place: "RankTopology", stop: "StopSignal") -> "TrainingEnd":
        return run_follower(settings, place, stop) if place.rank else Replay(settings, stop).run()

    return _run_ranks(settings, run)


def _run_ranks(
    settings: TrainerSettings | StageSettings, run: "Callable[[RankTopology, StopSignal], TrainingEnd]"
) -> int:
    """Runs this process's part of the training to its end or a signal; returns the exit code."""
    from headrace.services.trainer.distributed.stop import StoppedError, StopSignal, TrainingEnd
    from headrace.services.trainer.distributed.topology import settle_place

    place = settle_place(settings, sys.argv[1:])
    weights = isinstance(settings, TrainerSettings) and settings.trainer.publish != "disk"
    if place.first and (carried := collectives_leave(settings, nodes=settings.trainer.nodes, weights=weights)):
        get_logger("trainer").warning(
            "collectives_not_encrypted", carry=carried, use="a private network, WireGuard or network policies"
        )
    stop = StopSignal()
    stop.install()
    try:
        end = run(place, stop)
    except StoppedError as error:
        get_logger("trainer").info("stopped", reason=str(error))
        end = TrainingEnd.INTERRUPTED
    # A supervisor sees only a machine's first process, which treats any other code of a child as a failure.
    if not place.first or end is TrainingEnd.FINISHED:
        return 0
    code: int = _options().operator_code if end is TrainingEnd.STOPPED else _options().stopped_code
    return code


def write_export(settings: ExportSettings) -> int:
    """Exports the model of a checkpoint and writes path, step and digest to stdout as one line of JSON.

    Heavy imports happen here.
    """
    from headrace.services.trainer.export.checkpoint_export import export_checkpoint

    sys.stdout.write(json.dumps(asdict(export_checkpoint(settings))) + "\n")
    return 0


def write_base(settings: TrainerSettings) -> int:
    """Writes RUN/base. Heavy imports happen here."""
    from headrace.services.trainer.stages.engine_base import write_engine_base

    write_engine_base(settings)
    return 0


def check_algorithm(settings: TrainerSettings) -> int:
    """Imports and calls the user's own functions of the algorithm. Heavy imports happen here."""
    from headrace.services.trainer.stages.own_functions import load_algorithm

    load_algorithm(settings, code=_options().code)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--stage", choices=("rl", "sft", "reward_model", "dpo"), default="rl")
    parser.add_argument("--write-base", action="store_true")
    parser.add_argument("--check-algorithm", action="store_true")
    parser.add_argument("--code", type=Path)
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--export", action="store_true")
    # A Kubernetes Job takes 0 for the end of the run, even from a pod that was only moved to another node.
    parser.add_argument("--stopped-code", type=int, default=0)
    # An operator's stop is the end for such a Job. On a machine that joins, only this process knows of it.
    parser.add_argument("--operator-code", type=int, default=0)
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
    if asked.check_algorithm:
        return run_service("trainer", TrainerSettings, check_algorithm)
    return run_service("trainer", TrainerSettings, run_rl)


if __name__ == "__main__":
    end_process(main())
