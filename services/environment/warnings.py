"""What people should know of the episodes that were played: as events, in the log, and as notes of the status."""

from collections import Counter

from headrace.services.environment import metrics
from headrace.services.environment.abstentions import AbstentionWatch, length_bucket
from headrace.services.environment.agent.segments import SegmentWatch
from headrace.wire.contracts import FinishReason, Rollout, RolloutGroup
from headrace.wire.rundir.events import EventLog
from headrace.wire.telemetry.logs import get_logger

log = get_logger("environment")


class EpisodeWarnings:
    """Warns of a high share of abstentions, and of time limits where the run is to be deterministic."""

    def __init__(self, events: EventLog, *, deterministic: bool) -> None:
        self._events, self._deterministic = events, deterministic
        self._watch = AbstentionWatch()
        self._segments = SegmentWatch()
        self._broken, self._last_broken = 0, ""

    def take(self, group: RolloutGroup) -> None:
        """Takes a group into account that was played."""
        for rollout in group.rollouts:
            self._take(rollout)

    def take_turns(self, name: str, turns: int, begun: Counter[str]) -> None:
        """Takes the turns of an agent's episode into account; `begun` counts why some of them begin a segment."""
        share = self._segments.take(name, turns, begun)
        if share is not None:
            self._events.append(
                "segments_many", share=round(share.share, 4), turns=share.turns, reasons=share.reasons, rollout_id=name
            )
            log.warning("segments_many", words=share.in_words())

    def notes(self) -> list[str]:
        """What is so now."""
        found = [self._watch.now.in_words()] if self._watch.is_high else []
        if self._segments.is_high:
            found.append(self._segments.now.in_words())
        if self._broken:
            found.append(
                f"rollout.deterministic is broken: a time limit ended {self._broken} episodes, the last of them "
                f"{self._last_broken}"
            )
        return found

    def _take(self, rollout: Rollout) -> None:
        reason, tokens = rollout.finish_reason, rollout.trained_tokens
        metrics.EPISODES_BY_LENGTH.labels(reason.value, length_bucket(tokens)).inc()
        share = self._watch.take(reason, tokens, abstains=rollout.must_abstain)
        if share is not None:
            lengths = {name: {"episodes": all_, "abstained": lost} for name, (all_, lost) in share.lengths.items()}
            self._events.append(
                "abstentions_high",
                share=round(share.share, 4), episodes=share.episodes, reasons=share.reasons, lengths=lengths,
            )  # fmt: skip
            log.warning("abstentions_high", words=share.in_words())
        if self._deterministic and reason is FinishReason.TIME:
            error = rollout.episode.error if rollout.episode is not None else ""
            self._broken, self._last_broken = self._broken + 1, f"{rollout.rollout_id} ({error})"
            self._events.append("determinism_broken", rollout_id=rollout.rollout_id, error=error)
            log.warning("determinism_broken", rollout=rollout.rollout_id, error=error)
