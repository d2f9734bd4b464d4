"""The RL stage of the ranks above 0: models and commands, and nothing else of a service."""

import signal

from services.trainer.crew import Place, assemble_ranks, rank_device
from services.trainer.leader import follow
from services.trainer.ranks import Ranks
from services.trainer.settings import TrainerSettings
from services.trainer.stages.parts import canary_maker, load_learner
from wire.telemetry import configure_logging


def join_ranks(settings: TrainerSettings, place: Place) -> Ranks:
    """Makes this process one of the trainer's ranks; the first one starts the others."""
    return assemble_ranks(
        settings.trainer.ranks,
        place,
        device=rank_device(settings.run.device, place.rank),
        timeout_s=settings.trainer.collective_timeout_s,
        grouped=settings.trainer.backend in ("fsdp2", "deepspeed"),
    )


def run_follower(settings: TrainerSettings, place: Place) -> int:
    """What a rank above 0 does from its start to its end; returns the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Given to all processes at once: rank 0 ends its step and says when to stop.
        signal.signal(number, signal.SIG_IGN)
    configure_logging("trainer", settings.run.id, f"{settings.instance}.{place.rank}")
    ranks = join_ranks(settings, place)
    follow(load_learner(settings, ranks, rank_device(settings.run.device, place.rank)), ranks, canary_maker(settings))
    return 0
