"""What one life of the RL trainer has from its beginning, before weights, ledger and orchestrator are there."""

import time
from dataclasses import dataclass

from headrace.services.trainer.distributed.stop import StopSignal
from headrace.services.trainer.durability.checkpoint import CheckpointStore
from headrace.services.trainer.publication.publisher import Publisher
from headrace.services.trainer.records.step_record import StepRecord
from headrace.services.trainer.records.step_trace import phase_span
from headrace.services.trainer.runtime.gpu_turns import TrainerTurns, make_locks
from headrace.services.trainer.runtime.runtime import BrokerMaker, Runtime
from headrace.services.trainer.settings import TrainerSettings
from headrace.services.trainer.stages.parts import make_publisher, make_record
from headrace.services.trainer.timing.phases import Phases
from headrace.wire.rundir.layout import RunPaths


class ShownWait:
    """Shows what the trainer waits for: in `/readyz`, and to the orchestrator once there is a reporter."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __call__(self, what: str, left_s: float | None = None) -> None:
        """Shows the wait for `what`, and for how many more seconds at most; an empty `what` ends it."""
        self._runtime.doing = what
        reporter = self._runtime.reporter
        if reporter is not None:
            reporter.waiting_for = what
            reporter.waiting_until = time.monotonic() + left_s if what and left_s is not None else None


@dataclass(frozen=True, slots=True)
class RlLife:
    """The parts of a life that its restore and its steps share. Used by the main thread of rank 0 only."""

    settings: TrainerSettings
    stop: StopSignal
    checkpoints: CheckpointStore
    record: StepRecord
    publisher: Publisher
    runtime: Runtime
    turns: TrainerTurns
    phases: Phases
    doing: ShownWait


def begin_life(settings: TrainerSettings, make_broker: BrokerMaker, stop: StopSignal) -> RlLife:
    """The parts of a new life; nothing runs yet, and this process has no further threads."""
    keys = settings.trainer
    publisher = make_publisher(settings)
    runtime = Runtime(settings, publisher, make_broker, stop.ask)
    doing = ShownWait(runtime)
    return RlLife(
        settings=settings,
        stop=stop,
        checkpoints=CheckpointStore(RunPaths(settings.run_dir).checkpoints, keep=keys.keep_checkpoints),
        record=make_record(settings),
        publisher=publisher,
        runtime=runtime,
        turns=TrainerTurns(make_locks(settings), runtime.ask_turn, doing, limit_s=keys.turn_timeout_s),
        phases=Phases(around=phase_span),
        doing=doing,
    )
