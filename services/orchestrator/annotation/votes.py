"""Annotators' votes of one run: selects the next pair, records and undoes votes, writes the ranked pairs."""

import json
import time
from pathlib import Path

from pydantic import JsonValue

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.annotation.ballots import Ballots, Choice
from headrace.services.orchestrator.annotation.pair_store import PairStore
from headrace.services.orchestrator.annotation.pairs import CompletionPair, Message, Record, Side
from headrace.services.orchestrator.annotation.vote_log import VoteLog
from headrace.wire.api.annotation import AnnotatedPair, AnnotatedSide, AnnotationTurn, PromptMessage
from headrace.wire.errors import HeadraceError
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths


class UnknownPairError(HeadraceError):
    """The rollouts contain no such pair."""


class OtherVoteError(HeadraceError):
    """The annotator already cast a different vote on this pair, which must be undone first."""


class VoteStore:
    """Votes of one run directory. Blocks on disk I/O; not thread-safe."""

    def __init__(self, run_dir: Path) -> None:
        """Raises ConfigError if another process has the votes open."""
        self._pairs, self._ballots = PairStore(run_dir), Ballots()
        self._ranked = RunPaths(run_dir).ranked_pairs
        self._log = VoteLog(run_dir)
        for record in self._log.records():
            self._ballots.apply(record)
        if self._ballots.pairs:  # A kill may have come between a vote and the ranked pairs.
            self._export()

    def turn(self, annotator: str) -> AnnotationTurn:
        """The next pair for the annotator to judge, and their progress."""
        return self._turn(annotator, self._next(annotator))

    def vote(self, annotator: str, pair_id: str, choice: Choice) -> AnnotationTurn:
        """Records a vote unless it is recorded already; returns the next turn.

        Raises UnknownPairError, OtherVoteError, OSError.
        """
        before = self._ballots.seen(annotator).get(pair_id)
        if before is not None and before != choice:
            raise OtherVoteError(f"{annotator} has already voted {before!r} on this pair; undo that first")
        if before is None:
            pair = self._pair(pair_id)
            if pair_id not in self._ballots.pairs:
                # The log includes the texts, so it remains usable when the rollouts are gone.
                self._add({"kind": "pair", **pair.as_record()})
            self._add({"kind": "vote", "pair": pair_id, "annotator": annotator, "choice": choice, "t": _now()})
            metrics.ANNOTATION_VOTES.labels(choice).inc()
            self._export()
        return self.turn(annotator)

    def undo(self, annotator: str, pair_id: str) -> AnnotationTurn:
        """Withdraws a vote, if there is one; returns the same pair as next turn. Raises UnknownPairError, OSError."""
        pair = self._pair(pair_id)
        if pair_id in self._ballots.seen(annotator):
            self._add({"kind": "undo", "pair": pair_id, "annotator": annotator, "t": _now()})
            self._export()
        return self._turn(annotator, pair)

    def close(self) -> None:
        """Releases the votes."""
        self._log.close()

    def _add(self, record: Record) -> None:
        self._log.append(record)
        self._ballots.apply(record)

    def _export(self) -> None:
        """Writes the ranked pairs. Not durably: the votes make them again."""
        rows = "".join(json.dumps(row) + "\n" for row in self._ballots.ranked())
        atomic.write_text(self._ranked, rows, durable=False)

    def _pair(self, pair_id: str) -> CompletionPair:
        pair = self._ballots.pairs.get(pair_id) or self._pairs.pair(pair_id)
        if pair is None:
            raise UnknownPairError(f"there is no pair {pair_id!r} in the rollouts of this run")
        return pair

    def _turn(self, annotator: str, pair: CompletionPair | None) -> AnnotationTurn:
        seen = self._ballots.seen(annotator)
        return AnnotationTurn(
            pair=None if pair is None else _shown(pair),
            undo=next(reversed(seen), None),
            judged=len(seen),
        )

    def _next(self, annotator: str) -> CompletionPair | None:
        """The newest pair without a verdict; when there is none, one with the fewest verdicts."""
        seen, verdicts = self._ballots.seen(annotator), self._ballots.verdicts()
        for pair_id in self._pairs.newest():
            if pair_id not in seen and not verdicts.get(pair_id):
                return self._pairs.pair(pair_id)
        return next((self._ballots.pairs[pair_id] for pair_id in verdicts if pair_id not in seen), None)


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
