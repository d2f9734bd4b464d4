"""Asks, takes and keeps the annotators' votes of one run: the rollouts' pairs on one side, the votes on the other."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from services.orchestrator import metrics
from services.orchestrator.annotation.ballots import Ballots
from services.orchestrator.annotation.pairs import Pair, Side
from services.orchestrator.annotation.shelf import Shelf
from services.orchestrator.annotation.vote_log import VoteLog
from wire.errors import HeadraceError


class UnknownPairError(HeadraceError):
    """No such pair is in the rollouts."""


class OtherVoteError(HeadraceError):
    """The annotator has said something else of this pair before; that must be undone first."""


class Book:
    """Of one run directory. Blocks on the disk; may be used from several threads."""

    def __init__(self, run_dir: Path) -> None:
        """Raises ConfigError if another process has the votes, DataError if they cannot be read."""
        folder = run_dir / "annotations"
        self._shelf, self._ballots, self._lock = Shelf(run_dir), Ballots(), threading.Lock()
        self._log = VoteLog(folder)
        self._ranked = folder / "pairs.jsonl"
        try:
            for record in self._log.records:
                self._ballots.apply(record)
        except BaseException:
            self._log.close()  # Else nobody could open it again while this process lives.
            raise
        self._log.records.clear()
        self._is_exported = False

    def turn(self, annotator: str) -> dict[str, Any]:
        """What the annotator is to judge next, and how far they are."""
        with self._lock:
            return self._turn(annotator)

    def vote(self, annotator: str, pair_id: str, choice: str) -> dict[str, Any]:
        """Keeps a vote, unless it is kept already; then the next turn.

        Raises UnknownPairError, OtherVoteError, OSError.
        """
        with self._lock:
            before = self._ballots.choice(pair_id, annotator)
            if before is not None and before != choice:
                raise OtherVoteError(f"{annotator} has said {before!r} of this pair; undo that first")
            if before is None:
                self._keep(annotator, pair_id, choice)
            return {"recorded": before is None, "next": self._turn(annotator)}

    def undo(self, annotator: str, pair_id: str) -> dict[str, Any]:
        """Takes a vote back, unless there is none, and asks the same pair again. Raises UnknownPairError, OSError."""
        with self._lock:
            pair = self._pair(pair_id)
            is_there = self._ballots.choice(pair_id, annotator) is not None
            if is_there:
                self._add({"kind": "undo", "pair": pair_id, "annotator": annotator, "t": _now()})
            return {"undone": is_there, "next": self._turn(annotator, pair)}

    def summary(self) -> dict[str, Any]:
        """Counts and agreement of all annotators."""
        with self._lock:
            return self._ballots.summary()

    def export(self) -> None:
        """Writes the ranked pairs, whole or not at all, if votes have changed since."""
        with self._lock:
            if self._is_exported:
                return
            rows = "".join(json.dumps(row) + "\n" for row in self._ballots.ranked())
            aside = self._ranked.with_name(f".{self._ranked.name}.{os.getpid()}")
            aside.write_text(rows, encoding="utf-8")
            aside.rename(self._ranked)
            self._is_exported = True

    def close(self) -> None:
        """Writes the ranked pairs and, also if that fails, lets another process have the votes. Raises OSError."""
        try:
            self.export()
        finally:
            with self._lock:
                self._log.close()

    def _keep(self, annotator: str, pair_id: str, choice: str) -> None:
        pair = self._pair(pair_id)
        vote = {"kind": "vote", "pair": pair_id, "annotator": annotator, "choice": choice, "t": _now()}
        # The log holds the texts too: it stands when the rollouts are gone.
        first = [] if pair_id in self._ballots.pairs else [{"kind": "pair", **pair.as_record()}]
        self._add(*first, vote)
        metrics.ANNOTATION_VOTES.labels(choice).inc()

    def _add(self, *records: dict[str, Any]) -> None:
        self._log.append(records)
        for record in records:
            self._ballots.apply(record)
        self._is_exported = False

    def _pair(self, pair_id: str) -> Pair:
        pair = self._ballots.pairs.get(pair_id) or self._shelf.pair(pair_id)
        if pair is None:
            raise UnknownPairError(f"there is no pair {pair_id!r} in the rollouts of this run")
        return pair

    def _turn(self, annotator: str, pair: Pair | None = None) -> dict[str, Any]:
        self._shelf.look()
        seen = self._ballots.seen(annotator)
        pair = pair or self._next(annotator)
        known = set(self._ballots.pairs).union(self._shelf.newest())
        return {
            "pair": None if pair is None else _shown(pair),
            "undo": next(reversed(seen), None) if seen else None,
            "judged": len(seen),
            "waiting": len(known.difference(seen)),
        }

    def _next(self, annotator: str) -> Pair | None:
        wanted, rest = self._ballots.shared(annotator)
        if wanted and self._ballots.wants_shared(annotator):
            return self._ballots.pairs[wanted[0]]
        for pair_id in self._shelf.newest():
            if not self._ballots.verdicts(pair_id) and pair_id not in self._ballots.seen(annotator):
                pair = self._shelf.pair(pair_id)
                if pair is not None:
                    return pair
        others = [*wanted, *rest]
        return self._ballots.pairs[others[0]] if others else None


def _shown(pair: Pair) -> dict[str, Any]:
    """What an annotator may see: no reward, no rollout number."""
    prompt = [{"role": "prompt", "content": pair.prompt}] if isinstance(pair.prompt, str) else pair.prompt
    return {
        "id": pair.pair_id,
        "step": pair.step,
        "prompt": [{"role": str(one.get("role", "")), "content": _text(one.get("content"))} for one in prompt],
        "left": _shown_side(pair.left),
        "right": _shown_side(pair.right),
    }


def _shown_side(side: Side) -> dict[str, Any]:
    return {"text": side.text, "truncated": side.truncated}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return json.dumps(content, ensure_ascii=False, indent=2)


def _now() -> float:
    return round(time.time(), 3)
