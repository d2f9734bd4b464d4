"""The RL stage of the ranks above 0: models and commands, and nothing else of a service but its health."""

import signal
from functools import partial

from services.trainer.crew import Crew, CrewOptions
from services.trainer.face import Face
from services.trainer.leader import follow
from services.trainer.place import Place, rank_device, settle_place
from services.trainer.settings import TrainerSettings
from services.trainer.stages.parts import canary_maker, load_learner
from services.trainer.stop import StopSignal
from wire.telemetry import configure_logging

MEETING = "waiting for the trainer's other ranks"


def make_crew(settings: TrainerSettings, stop: StopSignal | None, place: Place | None = None) -> Crew:
    """Starts this machine's other ranks, if `place` (that of its first process) is not one of them itself.

    Call it in the main thread, before there are other threads.
    """
    place = place or settle_place(settings)
    grouped = settings.trainer.backend in ("fsdp2", "deepspeed")
    return Crew(place, CrewOptions.of(settings, place, grouped=grouped), stop)


def run_follower(settings: TrainerSettings, place: Place, stop: StopSignal) -> int:
    """What a rank above 0 does from its start to its end; returns the exit code. Raises StoppedError.

    `stop.signalled` says at the end whether a signal ended the run, on whatever machine.
    """
    if not place.first:
        for number in (signal.SIGINT, signal.SIGTERM):
            # Given to all processes at once: rank 0 ends its step and says when to stop.
            signal.signal(number, signal.SIG_IGN)
    name = f"{settings.instance}.{place.rank}"
    configure_logging("trainer", settings.run.id, name)
    crew = make_crew(settings, stop if place.first else None, place)
    face = Face(settings, MEETING) if place.first else None
    if face:
        face.start()
    with crew.joined() as ranks:
        if face:
            face.doing = ""
        load = partial(load_learner, settings, ranks, rank_device(settings.run.device, place.local))
        stop.signalled = follow(ranks, load, canary_maker(settings))
    return 0
