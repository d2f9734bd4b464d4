"""A stage on given examples on this rank: the ranks come together, each runs the whole stage, and they part."""

from services.trainer.backends.choice import choose
from services.trainer.crew import Crew, CrewOptions
from services.trainer.face import Face
from services.trainer.place import Place, rank_device
from services.trainer.stage_settings import StageSettings
from services.trainer.stages.follower import MEETING
from services.trainer.stages.offline_run import OfflineRun
from services.trainer.stop import StopSignal


def run_offline(settings: StageSettings, place: Place, stop: StopSignal) -> int:
    """From the start to the end of this process; returns the exit code. Raises StoppedError.

    `stop.signalled` says at the end whether a signal ended the stage, on whatever machine.
    """
    table = settings.trainer
    grouped = choose(table.backend, table.ranks) != "single"
    crew = Crew(place, CrewOptions.of(settings, place, grouped=grouped), stop if place.first else None)
    face = Face(settings, MEETING) if place.first else None
    if face:
        face.start()
    with crew.joined() as ranks:
        if face:
            face.doing = "loading the model"
        device = rank_device(settings.run.device, place.local)
        stop.signalled = not OfflineRun(settings, ranks, device, stop, face).run()
        # Served until then: rank 0 may write for long, and probes look at the other machines meanwhile.
        ranks.leave()
    if face:
        face.stop()
    return 0
