"""Rank 0 leads: it sends the other ranks a command before it acts, and acts together with them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from headrace.services.trainer.backends.backend import Backend
from headrace.services.trainer.distributed.collectives import Ranks
from headrace.services.trainer.distributed.stop import TrainingEnd
from headrace.services.trainer.durability.background_writer import BackgroundWriter
from headrace.services.trainer.durability.checkpoint import Checkpoint, load_checkpoint
from headrace.services.trainer.durability.ledger import ReadyGroup
from headrace.services.trainer.durability.rank_shards import RankShards
from headrace.services.trainer.learner.commands import Command, Commands
from headrace.services.trainer.learner.learner import Learner, Saved
from headrace.services.trainer.publication.held import Held
from headrace.services.trainer.publication.publisher import Publisher
from headrace.services.trainer.step.step import StepInterruptedError, StepOutcome
from headrace.services.trainer.timing.phases import Timed, untimed
from headrace.wire.access import process
from headrace.wire.contracts import ScoredGroup, decode

LOAD = "load_models"


class Followers:
    """Rank 0's view of all other ranks, from before the models are loaded to the end. Used by the main thread."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._commands = _channel(ranks) if ranks.store is not None and ranks.size > 1 else None

    def send(self, name: str, payloads: Sequence[bytes] = (), **values: object) -> None:
        """Sends the next command. The first loads their models: until then their GPUs may belong to the engines."""
        if self._commands is not None:
            self._commands.send(name, payloads, **values)

    def stop(self, end: TrainingEnd) -> None:
        """Stops the other ranks, which end as this process does; it must end then too."""
        if self._commands is not None:
            self.send("stop", end=end)
            self._ranks.leave()


class Leader:
    """The learner of rank 0, with all other ranks behind it. Used by the main thread alone."""

    def __init__(self, learner: Learner, followers: Followers) -> None:
        self._learner = learner
        self._send = followers.send

    @property
    def policy(self) -> Backend:
        """The policy's backend on this rank."""
        return self._learner.policy

    @property
    def ranks(self) -> Ranks:
        """All ranks."""
        return self._learner.policy.ranks

    @property
    def coefficients(self) -> dict[str, float]:
        """The learner's adaptive coefficients."""
        return self._learner.coefficients

    def train(
        self, step: int, batch: Sequence[ReadyGroup], interrupted: Callable[[], bool], *, phases: Timed = untimed
    ) -> StepOutcome:
        """Runs `Learner.train` on all ranks; `phases` are those of rank 0."""
        self._send("train", [group.data for group in batch], step=step)
        return self._learner.train(step, [group.scored for group in batch], interrupted, phases=phases)

    def hold(self, publisher: Publisher, version: int) -> Held:
        """Takes the snapshot of a version, on all ranks."""
        self._send("hold")
        return publisher.hold(self.policy, version)

    def publish_discriminator(self) -> None:
        """Runs `Learner.publish_discriminator` on all ranks."""
        self._send("publish_discriminator")
        self._learner.publish_discriminator()

    def save(self, aside: Path) -> Saved:
        """Runs `Learner.save` on all ranks; the others begin to write their shards into `aside`."""
        self._send("save", aside=str(aside.relative_to(self._learner.run_dir)))
        return self._learner.save()

    def park(self) -> None:
        """Runs `Learner.park` on all ranks."""
        self._send("park")
        self._learner.park()

    def unpark(self) -> None:
        """Runs `Learner.unpark` on all ranks."""
        self._send("unpark")
        self._learner.unpark()

    def load(self, checkpoint: Checkpoint) -> None:
        """Runs `Learner.load` on all ranks; each reads the same files, below the run directory as it sees it."""
        self._send("load", path=str(checkpoint.path.relative_to(self._learner.run_dir)))
        self._learner.load(checkpoint)

    def export(self, target: Path) -> str:
        """Runs `Learner.export` on all ranks."""
        self._send("export", target=str(target))
        return self._learner.export(target)


def follow(ranks: Ranks, load: Callable[[], Learner], canary: Callable[[Backend], object]) -> TrainingEnd:
    """Executes the commands of rank 0 on a rank above 0 until it stops; returns how training ended.

    `load` makes the learner, when rank 0 commands it.
    """
    commands = _channel(ranks)
    learner: Learner | None = None
    shards, writer = RankShards(ranks), BackgroundWriter("the shard")
    while True:
        command = commands.next()
        if command.name == "stop":
            ranks.leave()
            return TrainingEnd(str(command.values["end"]))
        if command.name == LOAD:
            learner = load()
            continue
        assert learner is not None, f"rank 0 sent the command {command.name!r} before the models were loaded"
        if command.name == "save":
            writer.start(partial(shards.write, learner.run_dir / command.values["aside"], learner.save().copied))
            continue
        _obey(command, learner, canary)


def _channel(ranks: Ranks) -> Commands:
    """The end of this rank, with the trainer's token, which all ranks read; a process without a role has none."""
    assert ranks.store is not None
    access = process.current()
    token = "" if access is None else access.tokens().token
    return Commands(ranks.store, ranks.size, rank=ranks.rank, token=token)


def _obey(command: Command, learner: Learner, canary: Callable[[Backend], object]) -> None:
    match command.name:
        case "train":
            # Interrupted because rank 0 was asked to stop: it sends what is next.
            with suppress(StepInterruptedError):
                learner.train(int(command.values["step"]), [_group(data) for data in command.payloads])
        case "hold":
            learner.join_hold(canary)
        case "publish_discriminator":
            learner.publish_discriminator()
        case "park":
            learner.park()
        case "unpark":
            learner.unpark()
        case "load":
            learner.load(load_checkpoint(learner.run_dir / command.values["path"]))
        case "export":
            learner.export(Path(command.values["target"]))
        case _:
            raise ValueError(f"rank 0 sent the command {command.name!r}, which no rank implements")


def _group(data: bytes) -> ScoredGroup:
    body = decode(data).body
    assert isinstance(body, ScoredGroup)
    return body
