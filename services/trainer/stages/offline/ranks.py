"""Runs a stage on given examples on this rank: the ranks join, each runs the whole stage, and they leave."""

from headrace.services.trainer.backends.choice import choose
from headrace.services.trainer.config.stage import StageSettings
from headrace.services.trainer.distributed.launch import LaunchOptions, RankProcesses
from headrace.services.trainer.distributed.stop import StopSignal, TrainingEnd
from headrace.services.trainer.distributed.topology import RankTopology, rank_device
from headrace.services.trainer.runtime.health_server import HealthServer
from headrace.services.trainer.stages.follower import AWAITING_RANKS
from headrace.services.trainer.stages.offline.run import OfflineRun


def run_offline(settings: StageSettings, place: RankTopology, stop: StopSignal) -> TrainingEnd:
    """Runs this process from start to end; returns how the stage ended. Raises StoppedError."""
    table = settings.trainer
    grouped = choose(table.backend, table.ranks) != "single"
    processes = RankProcesses(place, LaunchOptions.of(settings, place, grouped=grouped), stop if place.first else None)
    health = HealthServer(settings, AWAITING_RANKS) if place.first else None
    if health:
        health.start()
    with processes.joined() as ranks:
        if health:
            health.doing = "loading the model"
        device = rank_device(settings.run.device, place.local)
        finished = OfflineRun(settings, ranks, device, stop, health).run()
        # Health is served until then: rank 0 may write for long, while probes check the other machines.
        ranks.leave()
    if health:
        health.stop()
    return TrainingEnd.FINISHED if finished else TrainingEnd.INTERRUPTED
