"""Starts the trainer: `python -P -m services.trainer [--stage sft] --config RUN/config/trainer.json`."""

import argparse

from services.trainer.settings import SftSettings, TrainerSettings
from wire.entry import end_process, run_service


def run_rl(settings: TrainerSettings) -> int:
    """Imports what is heavy and runs the RL stage until `max_steps` or a signal."""
    from services.trainer.stages.rl import RlStage
    from services.trainer.stop import StopSignal
    from wire.streams.redis import RedisBroker

    stop = StopSignal()
    stop.install()
    return RlStage(settings, lambda: RedisBroker(settings.broker.url, settings.run.id), stop).run()


def run_sft(settings: SftSettings) -> int:
    """Imports what is heavy and runs the supervised stage."""
    from services.trainer.stages.sft import train_supervised

    train_supervised(settings)
    return 0


def main() -> int:
    """Chooses the stage."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--stage", choices=("rl", "sft"), default="rl")
    if parser.parse_known_args()[0].stage == "sft":
        return run_service("trainer-sft", SftSettings, run_sft)
    return run_service("trainer", TrainerSettings, run_rl)


if __name__ == "__main__":
    end_process(main())
