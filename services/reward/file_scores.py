"""Scores a JSONL file of completions: one line in, one line out, in order, with bounded memory."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from pydantic import ValidationError

from headrace.services.reward.http_api import ScoreSample, sample_of
from headrace.services.reward.rubric.circuit import CircuitOpenError, ScorerOutageError
from headrace.services.reward.rubric.rubric import Result
from headrace.services.reward.rubric.rubrics import Rubrics
from headrace.services.reward.scorer import Sample
from headrace.services.reward.threads import widen_threads
from headrace.wire.errors import DataError
from headrace.wire.rundir import atomic

_AHEAD = 8
"""Samples or groups under way, for each group that the service scores at a time."""
_PROGRESS_S = 0.2
_PAUSE_S = 0.5


@dataclass(slots=True)
class Tally:
    """What has been scored so far."""

    total: int
    done: int = 0
    scored: int = 0
    abstained: int = 0
    sum: float = 0.0
    waiting: str = ""
    """For a scorer that is down: which, and why."""

    def add(self, result: Result) -> None:
        """Counts one sample."""
        self.done += 1
        if result.value is None:
            self.abstained += 1
        else:
            self.scored += 1
            self.sum += result.value

    def as_json(self) -> dict[str, object]:
        """Content of one progress line."""
        mean = self.sum / self.scored if self.scored else None
        return {
            "done": self.done,
            "total": self.total,
            "scored": self.scored,
            "abstained": self.abstained,
            "mean": mean,
            "waiting": self.waiting,
        }


async def score_file(rubrics: Rubrics, source: Path, target: Path, *, concurrency: int, progress: TextIO) -> Tally:
    """Writes `target` whole or not at all; reports its progress as JSON lines. Raises DataError naming file and line.

    A scorer that is down is waited for, until ScorerOutageError.
    """
    tally = Tally(total=sum(1 for _ in _samples(source)))
    last = 0.0

    def report(waiting: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _PROGRESS_S:
            last, tally.waiting = time.monotonic(), waiting
            _print_progress(progress, tally)

    # The command makes it again.
    with atomic.replaced_file(target, durable=False) as aside:
        try:
            with aside.open("w", encoding="utf-8") as out:
                units = _units(_samples(source))
                while ahead := list(islice(units, _AHEAD * concurrency)):
                    for results in await asyncio.gather(*(_score(rubrics, unit, report) for unit in ahead)):
                        for result in results:
                            tally.add(result)
                            out.write(_line(result) + "\n")
                    report("")
        except ScorerOutageError as error:
            kept = target.with_name(f"{target.name}.part")
            atomic.move(aside, kept, durable=False)
            raise ScorerOutageError(f"{error}; the scores of the first {tally.done} lines are in {kept}") from error
    tally.waiting = ""
    _print_progress(progress, tally)
    return tally


async def _score(rubrics: Rubrics, unit: list[Sample], report: Callable[[str], None]) -> list[Result]:
    while True:
        try:
            return await rubrics.score(unit, patient=False)
        except CircuitOpenError as error:  # Bounded: the circuit raises ScorerOutageError in the end.
            report(str(error))
            await asyncio.sleep(max(_PAUSE_S, error.retry_s))


def _units(samples: Iterator[Sample]) -> Iterator[list[Sample]]:
    """What is scored together: samples of one group that stand next to each other; any other alone."""
    unit: list[Sample] = []
    for sample in samples:
        if unit and not (sample.group and sample.group == unit[-1].group):
            yield unit
            unit = []
        unit.append(sample)
    if unit:
        yield unit


def _samples(source: Path) -> Iterator[Sample]:
    """Raises DataError for a line that is not a sample."""
    try:
        with source.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _sample(source, number, line)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{source}: {error}") from error


def _sample(source: Path, number: int, line: str) -> Sample:
    try:
        return sample_of(ScoreSample.model_validate(json.loads(line)), name=f"{source.name}:{number}")
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{source}:{number}: not JSON: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the line"
        raise DataError(
            f'{source}:{number}: {key}: {first["msg"]}; a line is {{"prompt": ..., "completion": ..., "answer": ...}}'
        ) from None


def _line(result: Result) -> str:
    return json.dumps({"score": result.value, "components": result.components, "reason": result.reason})


def _print_progress(progress: TextIO, tally: Tally) -> None:
    progress.write(json.dumps(tally.as_json()) + "\n")
    progress.flush()


async def run(rubrics: Rubrics, source: Path, target: Path, *, concurrency: int) -> int:
    """Loads the scorers, scores the file, ends the scorers; progress goes to stdout. Returns 0.

    What libraries and the user's code print goes to stderr, the service's log: stdout is for progress alone.
    """
    with os.fdopen(os.dup(1), "w") as progress:
        os.dup2(2, 1)
        widen_threads(concurrency)
        await rubrics.load()
        for slot in rubrics.slots:
            slot.ends_at_bugs = True
        try:
            await score_file(rubrics, source, target, concurrency=concurrency, progress=progress)
        finally:
            await rubrics.close()
    return 0
