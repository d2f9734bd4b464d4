"""Handler of the `episodes` stream: plays all rollouts of a group, and puts them on `rollouts` as one."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.services.environment import metrics
from headrace.services.environment.child.errors import ChildDiedError, EnvironmentFailedError
from headrace.services.environment.child.pool import ChildPool
from headrace.services.environment.health import EnvironmentHealth
from headrace.services.environment.player.in_hand import EpisodesInHand
from headrace.services.environment.player.player import Player
from headrace.services.environment.player.replicas import ReplicaDirectory
from headrace.wire import tracing
from headrace.wire.contracts import (
    Episode,
    FinishReason,
    Header,
    Message,
    PromptGroup,
    Purpose,
    Rollout,
    RolloutGroup,
    encode,
    played_turns,
    rollout_id,
)
from headrace.wire.errors import ContractError, WaitTimeoutError
from headrace.wire.rundir.events import EventLog
from headrace.wire.streams import Put, StreamName
from headrace.wire.streams.columns import write_kept
from headrace.wire.streams.worker import HandBack
from headrace.wire.telemetry.logs import trace_id

_AWAY_S = 0.2
"""Pause before the next read after a group was handed back, so that another worker gets it."""

_DEATHS = 2
"""Deaths of its process after which an episode is played again: most are not the environment's fault."""


class EpisodeGroups:
    """Plays the groups of the `episodes` stream."""

    def __init__(
        self,
        player: Player[Any],
        pool: ChildPool[Any],
        directory: ReplicaDirectory,
        events: EventLog,
        *,
        worker_id: str,
        digest: str,
        limit: int,
        hold_s: float,
        outcome: Callable[[RolloutGroup], None],
        kept_ids: Path = Path(),
    ) -> None:
        """`limit` groups are played at a time; `outcome` is given each group that was played.

        The ids that their tokens were drawn from are written into the folder `kept_ids`.
        """
        self._player, self._pool, self._directory, self._events = player, pool, directory, events
        self._worker_id, self._digest, self._limit, self._hold_s = worker_id, digest, limit, hold_s
        self._outcome, self._kept_ids = outcome, kept_ids
        self.in_hand = EpisodesInHand()
        self._in_flight = self._held = 0

    def capacity(self, in_flight: int) -> int:
        """How many more groups may be taken; none while no replica serves.

        Held groups do not count: the stream may hold, behind them, the evaluation for which the publication of the very
        weights they need is waiting.
        """
        return max(self._limit - (in_flight - self._held), 0) if self._directory.serves(0) else 0

    async def handle(self, message: Message) -> list[Put]:
        """Plays one group; raises HandBack if no replica served the weights that it needs."""
        prompt, header = message.body, message.header
        if not isinstance(prompt, PromptGroup) or prompt.environment is None:
            raise ContractError(
                "wrong_body", f"{header.group_id}: the episodes stream carries groups of an environment"
            )
        if prompt.environment.digest != self._digest:
            raise ContractError(
                "other_environment",
                f"{header.group_id} is of the environment {prompt.environment.digest}, this worker has {self._digest}",
            )
        with tracing.span("play", header.traceparent, group_id=header.group_id, worker=self._worker_id) as span:
            group = await self._played(prompt, header)
            span.set(rollouts=len(group.rollouts), tokens=sum(len(one.token_ids) for one in group.rollouts))
        self._outcome(group)
        trace = trace_id(header.traceparent)
        self._events.append("group_generated", group_id=header.group_id, attempt=header.attempt, trace=trace)
        return [Put(stream=StreamName.ROLLOUTS, data=encode(Message(header=header, body=group)))]

    async def _played(self, prompt: PromptGroup, header: Header) -> RolloutGroup:
        self._count(1)
        try:
            await self._hold(prompt.min_version, header)
            begin = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                playing = [tasks.create_task(self._one(prompt, header, index)) for index in range(prompt.group_size)]
        except* ContractError as several:
            raise several.exceptions[0] from several
        finally:
            self._count(-1)
        rollouts = tuple(task.result() for task in playing)
        seconds, kept = time.monotonic() - begin, None
        if prompt.sampling.keeps_ids:
            kept = await asyncio.to_thread(write_kept, self._kept_ids, header, rollouts)
        return RolloutGroup(prompt=prompt, rollouts=rollouts, replica_id=self._worker_id, seconds=seconds, kept=kept)

    async def _one(self, prompt: PromptGroup, header: Header, index: int) -> Rollout:
        for _ in range(_DEATHS):
            try:
                return await self._attempt(prompt, header, index, last=False)
            except ChildDiedError:
                metrics.PLAYED_AGAIN.inc()
        return await self._attempt(prompt, header, index, last=True)

    async def _attempt(self, prompt: PromptGroup, header: Header, index: int, *, last: bool) -> Rollout:
        name = rollout_id(header.group_id, index)
        try:
            with self.in_hand.episode(name, _training_index(header), "slot", "a free slot") as state:
                async with self._pool.child() as child:
                    with tracing.span("episode", rollout_id=name) as span:
                        rollout = await self._player.play(child, prompt, header, index, last=last, state=state)
                        turns = len(rollout.episode.turn_ends) if rollout.episode is not None else 0
                        span.set(end=rollout.finish_reason.value, turns=turns, tokens=rollout.trained_tokens)
                        return rollout
        except EnvironmentFailedError as error:
            if isinstance(error, ChildDiedError) and not last:
                raise
            # Its process was not ready: nothing has begun.
            metrics.EPISODES.labels(FinishReason.ENVIRONMENT_ERROR.value).inc()
            return lost_rollout(name, str(error))

    async def _hold(self, min_version: int, header: Header) -> None:
        """Waits up to `hold_s` for the weights that the group needs: they are most likely being published.

        Raises HandBack then and when they have come. Groups that waited are read again in the order of the stream: a
        later one, held for the next version, would else take the place of an earlier one that was handed back because
        this worker had its share, and for which the trainer waits.
        """
        if self._directory.serves(min_version):
            return
        self._count(0, 1)
        what = f"weights of version {min_version}"
        try:
            with self.in_hand.episode(header.group_id, _training_index(header), "weights", what):
                await self._directory.wait_to_serve(min_version, self._hold_s)
        except WaitTimeoutError as error:
            raise HandBack(str(error), _AWAY_S) from error
        finally:
            self._count(0, -1)
        raise HandBack(f"{what} are served")

    def _count(self, change: int, held: int = 0) -> None:
        self._in_flight += change
        self._held += held
        metrics.IN_FLIGHT.set(self._in_flight)
        metrics.HELD.set(self._held)


def _training_index(header: Header) -> int:
    return header.group_index if header.purpose is Purpose.TRAIN else -1


def lost_rollout(name: str, error: str) -> Rollout:
    """A rollout whose environment never began."""
    played = played_turns([])
    return Rollout(
        rollout_id=name,
        token_ids=played.token_ids,
        logprobs=played.logprobs,
        finish_reason=FinishReason.ENVIRONMENT_ERROR,
        spans=(),
        episode=Episode(error=error),
    )


def report_to(health: EnvironmentHealth, end: Callable[[Exception], None]) -> Callable[[RolloutGroup], None]:
    """Lets `health` follow what is played; `end` is called with the error that ends the run."""

    def outcome(group: RolloutGroup) -> None:
        try:
            health.take(group, time.monotonic())
        except Exception as error:
            end(error)

    return outcome
