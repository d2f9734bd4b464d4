"""Annotators' votes of one run: selects the next pair, records and undoes votes, exports the ranked pairs."""

import json
import threading
import time
from pathlib import Path

from pydantic import JsonValue

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.annotation.ballots import Ballots
from headrace.services.orchestrator.annotation.pair_store import PairStore
from headrace.services.orchestrator.annotation.pairs import CompletionPair, Message, Record, Side
from headrace.services.orchestrator.annotation.vote_log import VoteLog
from headrace.wire.api.annotation import (
    AnnotatedPair,
    AnnotatedSide,
    AnnotationSummary,
    AnnotationTurn,
    PromptMessage,
    VoteRecorded,
    VoteWithdrawn,
)
from headrace.wire.errors import HeadraceError
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths


class UnknownPairError(HeadraceError):
    """The rollouts contain no such pair."""


class OtherVoteError(HeadraceError):
    """The annotator already cast a different vote on this pair, which must be undone first."""


class VoteStore:
    """Votes of one run directory. Blocks on disk I/O; thread-safe."""

    def __init__(self, run_dir: Path) -> None:
        """Raises ConfigError if another process has the votes open, DataError if they cannot be read."""
        self._pairs, self._ballots, self._lock = PairStore(run_dir), Ballots(), threading.Lock()
        self._log = VoteLog(run_dir)
        self._ranked = RunPaths(run_dir).ranked_pairs
        try:
            for record in self._log.records:
                self._ballots.apply(record)
        except BaseException:
            self._log.close()  # Otherwise the lock would be held for the lifetime of this process.
            raise
        self._log.records.clear()
        self._is_exported = False

    def turn(self, annotator: str) -> AnnotationTurn:
        """The next pair for the annotator to judge, and their progress."""
        with self._lock:
            return self._turn(annotator)

    def vote(self, annotator: str, pair_id: str, choice: str) -> VoteRecorded:
        """Records a vote unless it is recorded already; returns the next turn.

        Raises UnknownPairError, OtherVoteError, OSError.
        """
        with self._lock:
            before = self._ballots.choice(pair_id, annotator)
            if before is not None and before != choice:
                raise OtherVoteError(f"{annotator} has already voted {before!r} on this pair; undo that first")
            if before is None:
                self._keep(annotator, pair_id, choice)
            return VoteRecorded(recorded=before is None, next=self._turn(annotator))

    def undo(self, annotator: str, pair_id: str) -> VoteWithdrawn:
        """Withdraws a vote, if there is one; returns the same pair as next turn. Raises UnknownPairError, OSError."""
        with self._lock:
            pair = self._pair(pair_id)
            is_there = self._ballots.choice(pair_id, annotator) is not None
            if is_there:
                self._add({"kind": "undo", "pair": pair_id, "annotator": annotator, "t": _now()})
            return VoteWithdrawn(undone=is_there, next=self._turn(annotator, pair))

    def summary(self) -> AnnotationSummary:
        """Counts and agreement of all annotators."""
        with self._lock:
            return self._ballots.summary()

    def export(self) -> None:
        """Writes the ranked pairs atomically if votes have changed since the last export."""
        with self._lock:
            if self._is_exported:
                return
            rows = "".join(json.dumps(row) + "\n" for row in self._ballots.ranked())
            # The votes make it again.
            atomic.write_text(self._ranked, rows, durable=False)
            self._is_exported = True

    def close(self) -> None:
        """Writes the ranked pairs and, even if that fails, releases the votes. Raises OSError."""
        try:
            self.export()
        finally:
            with self._lock:
                self._log.close()

    def _keep(self, annotator: str, pair_id: str, choice: str) -> None:
        pair = self._pair(pair_id)
        vote: Record = {"kind": "vote", "pair": pair_id, "annotator": annotator, "choice": choice, "t": _now()}
        # The log includes the texts, so it remains usable when the rollouts are gone.
        first: list[Record] = [] if pair_id in self._ballots.pairs else [{"kind": "pair", **pair.as_record()}]
        self._add(*first, vote)
        metrics.ANNOTATION_VOTES.labels(choice).inc()

    def _add(self, *records: Record) -> None:
        self._log.append(records)
        for record in records:
            self._ballots.apply(record)
        self._is_exported = False

    def _pair(self, pair_id: str) -> CompletionPair:
        pair = self._ballots.pairs.get(pair_id) or self._pairs.pair(pair_id)
        if pair is None:
            raise UnknownPairError(f"there is no pair {pair_id!r} in the rollouts of this run")
        return pair

    def _turn(self, annotator: str, pair: CompletionPair | None = None) -> AnnotationTurn:
        self._pairs.look()
        seen = self._ballots.seen(annotator)
        pair = pair or self._next(annotator)
        known = set(self._ballots.pairs).union(self._pairs.newest())
        return AnnotationTurn(
            pair=None if pair is None else _shown(pair),
            undo=next(reversed(seen), None) if seen else None,
            judged=len(seen),
            waiting=len(known.difference(seen)),
        )

    def _next(self, annotator: str) -> CompletionPair | None:
        wanted, rest = self._ballots.shared(annotator)
        if wanted and self._ballots.wants_shared(annotator):
            return self._ballots.pairs[wanted[0]]
        for pair_id in self._pairs.newest():
            if not self._ballots.verdicts(pair_id) and pair_id not in self._ballots.seen(annotator):
                pair = self._pairs.pair(pair_id)
                if pair is not None:
                    return pair
        others = [*wanted, *rest]
        return self._ballots.pairs[others[0]] if others else None


def _shown(pair: CompletionPair) -> AnnotatedPair:
    """The pair as shown to an annotator: without rewards and rollout indices."""
    plain: Message = {"role": "prompt", "content": pair.prompt if isinstance(pair.prompt, str) else ""}
    prompt = (plain,) if isinstance(pair.prompt, str) else pair.prompt
    return AnnotatedPair(
        id=pair.pair_id,
        step=pair.step,
        prompt=tuple(PromptMessage(role=str(one.get("role", "")), content=_text(one.get("content"))) for one in prompt),
        left=_shown_side(pair.left),
        right=_shown_side(pair.right),
    )


def _shown_side(side: Side) -> AnnotatedSide:
    return AnnotatedSide(text=side.text, truncated=side.truncated)


def _text(content: JsonValue) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2)


def _now() -> float:
    return round(time.time(), 3)
