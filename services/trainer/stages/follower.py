"""The RL stage on ranks above 0: models and commands, and of the service only its health."""

import signal
from functools import partial

from headrace.services.trainer.distributed.launch import LaunchOptions, RankProcesses
from headrace.services.trainer.distributed.stop import StopSignal, TrainingEnd
from headrace.services.trainer.distributed.topology import RankTopology, rank_device, settle_place
from headrace.services.trainer.learner.leader import follow
from headrace.services.trainer.runtime.health_server import HealthServer
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.parts import canary_maker, load_learner
from headrace.wire.telemetry.logs import configure_logging

AWAITING_RANKS = "waiting for the trainer's other ranks"


def make_rank_processes(
    settings: TrainerSettings, stop: StopSignal | None, place: RankTopology | None = None
) -> RankProcesses:
    """Starts this machine's other ranks, unless `place` itself belongs to such a rank.

    Call it in the main thread, before there are other threads.
    """
    place = place or settle_place(settings)
    grouped = settings.trainer.backend in ("fsdp2", "deepspeed")
    return RankProcesses(place, LaunchOptions.of(settings, place, grouped=grouped), stop)


def run_follower(settings: TrainerSettings, place: RankTopology, stop: StopSignal) -> TrainingEnd:
    """Runs a rank above 0 from start to end; returns how training ended. Raises StoppedError."""
    if not place.first:
        for number in (signal.SIGINT, signal.SIGTERM):
            # All processes receive these at once: rank 0 ends its step and decides when to stop.
            signal.signal(number, signal.SIG_IGN)
    name = f"{settings.instance}.{place.rank}"
    configure_logging("trainer", settings.run.id, name)
    processes = make_rank_processes(settings, stop if place.first else None, place)
    health = HealthServer(settings, AWAITING_RANKS) if place.first else None
    if health:
        health.start()
    with processes.joined() as ranks:
        if health:
            health.doing = ""
        load = partial(load_learner, settings, ranks, rank_device(settings.run.device, place.local))
        return follow(ranks, load, canary_maker(settings))
