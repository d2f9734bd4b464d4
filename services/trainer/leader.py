"""Rank 0 leads: it tells the other ranks what it is about to do, and does it with them. They follow."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from services.trainer.backends.backend import Backend
from services.trainer.checkpoint import Checkpoint, load_checkpoint
from services.trainer.commands import Command, Commands
from services.trainer.learner import Learner, Saved
from services.trainer.ledger import ReadyGroup
from services.trainer.phases import Timed, untimed
from services.trainer.publication.held import Held
from services.trainer.publication.publisher import Publisher
from services.trainer.ranks import Ranks
from services.trainer.step import StepInterruptedError, StepOutcome
from wire.contracts import ScoredGroup, decode

LOAD = "load_models"


class Followers:
    """All other ranks, as rank 0 sees them: from before there are models to their end. Used by the main thread."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._commands = Commands(ranks.store, ranks.size) if ranks.store is not None and ranks.size > 1 else None

    def tell(self, name: str, payloads: Sequence[bytes] = (), **values: object) -> None:
        """What they do next. The first thing is to load their models: until then their GPUs may be another's."""
        if self._commands is not None:
            self._commands.tell(name, payloads, **values)

    def stop(self, *, signalled: bool = False) -> None:
        """Lets them end; the process must end then too. `signalled`: a signal wanted it."""
        if self._commands is not None:
            self.tell("stop", signalled=signalled)
            self._ranks.leave()


class Leader:
    """The learner of rank 0, with all other ranks behind it. Used by the main thread alone."""

    def __init__(self, learner: Learner, followers: Followers) -> None:
        self._learner = learner
        self._tell = followers.tell

    @property
    def policy(self) -> Backend:
        """The policy's backend on this rank."""
        return self._learner.policy

    @property
    def coefficients(self) -> dict[str, float]:
        """See `Learner`."""
        return self._learner.coefficients

    def train(
        self, step: int, batch: Sequence[ReadyGroup], interrupted: Callable[[], bool], *, phases: Timed = untimed
    ) -> StepOutcome:
        """See `Learner.train`; `phases` are those of rank 0."""
        self._tell("train", [group.data for group in batch], step=step)
        return self._learner.train(step, [group.scored for group in batch], interrupted, phases=phases)

    def hold(self, publisher: Publisher, version: int) -> Held:
        """Takes the snapshot of a version."""
        self._tell("hold")
        return publisher.hold(self.policy, version)

    def publish_discriminator(self) -> None:
        """See `Learner.publish_discriminator`."""
        self._tell("publish_discriminator")
        self._learner.publish_discriminator()

    def save(self) -> Saved:
        """See `Learner.save`."""
        self._tell("save")
        return self._learner.save()

    def park(self) -> None:
        """See `Learner.park`."""
        self._tell("park")
        self._learner.park()

    def unpark(self) -> None:
        """See `Learner.unpark`."""
        self._tell("unpark")
        self._learner.unpark()

    def load(self, checkpoint: Checkpoint) -> None:
        """See `Learner.load`; the other ranks read the same files, below the run directory as they see it."""
        self._tell("load", path=str(checkpoint.path.relative_to(self._learner.run_dir)))
        self._learner.load(checkpoint)

    def export(self, target: Path) -> str:
        """See `Learner.export`."""
        self._tell("export", target=str(target))
        return self._learner.export(target)


def follow(ranks: Ranks, load: Callable[[], Learner], canary: Callable[[Backend], object]) -> bool:
    """What the ranks above 0 do until they are told to stop; whether a signal wanted that.

    `load` makes the learner, once rank 0 says so.
    """
    assert ranks.store is not None
    commands = Commands(ranks.store, ranks.size)
    learner: Learner | None = None
    while True:
        command = commands.next()
        if command.name == "stop":
            ranks.leave()
            return bool(command.values["signalled"])
        if command.name == LOAD:
            learner = load()
            continue
        assert learner is not None, f"rank 0 tells {command.name!r} before there are models"
        _obey(command, learner, canary)


def _obey(command: Command, learner: Learner, canary: Callable[[Backend], object]) -> None:
    match command.name:
        case "train":
            # Interrupted: rank 0 was asked to stop; it knows, and says what is next.
            with suppress(StepInterruptedError):
                learner.train(int(command.values["step"]), [_group(data) for data in command.payloads])
        case "hold":
            learner.join_hold(canary)
        case "publish_discriminator":
            learner.publish_discriminator()
        case "save":
            learner.save()
        case "park":
            learner.park()
        case "unpark":
            learner.unpark()
        case "load":
            learner.load(load_checkpoint(learner.run_dir / command.values["path"]))
        case "export":
            learner.export(Path(command.values["target"]))
        case _:
            raise ValueError(f"rank 0 tells {command.name!r}, which no rank knows")


def _group(data: bytes) -> ScoredGroup:
    body = decode(data).body
    assert isinstance(body, ScoredGroup)
    return body
