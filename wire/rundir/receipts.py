"""`RUN/receipts.jsonl`: a hash chain over the files of a run that only grow. A receipt is the SHA-256 of a line of it.

A line holds, for each journal segment, event log, `metrics.jsonl` and `evals.jsonl` that has grown since the line
before, the range of new bytes and their SHA-256, and the receipt of that line: the newest receipt stands for every
byte up to the recorded offsets. Files that are replaced (checkpoints, rollouts, config, export) are in it by their
digests, which the trainer's events hold. See docs/adr/0013.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from headrace.wire.config.problems import first_problem
from headrace.wire.errors import DataError
from headrace.wire.rundir import atomic, jsonl
from headrace.wire.rundir.file_digests import sha256_of_range
from headrace.wire.rundir.layout import RunPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredRange:
    """The bytes [begin, end) of a file."""

    begin: int
    end: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptLine:
    """One line of the chain."""

    t: float
    """Unix seconds."""
    step: int
    """The last step that was done."""
    previous: str
    """The receipt of the line before; empty in the first."""
    files: dict[str, CoveredRange]
    """Path in the run directory -> what the file has gained since the line before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A line of the chain and its hash."""

    value: str
    """Hex sha256 of the line's bytes."""
    line: ReceiptLine


_LINE = TypeAdapter(ReceiptLine)


def take_receipt(run_dir: Path, *, step: int) -> Receipt | None:
    """Extends the chain by what the run's files have gained; returns its head, None for a run without such files.

    What a receipt covers is made durable before the receipt is: no crash of the machine contradicts it. Any process may
    call it at any time, one after the other. If no file has grown, the head stays. Raises OSError, and DataError if
    the chain cannot be read.
    """
    path = RunPaths(run_dir).receipts
    with _locked(path):
        jsonl.repair(path)
        chain = read_receipts(run_dir)
        files = _gained(run_dir, covered_offsets(chain))
        if not files:
            return chain[-1] if chain else None
        previous = chain[-1].value if chain else ""
        line = ReceiptLine(t=round(time.time(), 3), step=step, previous=previous, files=files)
        written = jsonl.append(path, asdict(line), durable=True)
        if not chain:
            atomic.sync(path.parent)
        return Receipt(value=_hash(written), line=line)


def read_receipts(run_dir: Path) -> list[Receipt]:
    """The chain, oldest line first; a torn last line is left out, and an absent file is an empty chain.

    Raises DataError, with file and line, for a line that is none. Whether the lines follow each other is not checked.
    """
    path, found = RunPaths(run_dir).receipts, []
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines[:-1], 1):
        try:
            found.append(Receipt(value=_hash(line + b"\n"), line=_LINE.validate_json(line)))
        except ValidationError as error:
            raise DataError(f"{path} line {number}: {first_problem(error)}") from None
    return found


def last_receipt(run_dir: Path) -> Receipt | None:
    """The head of the chain; None for a run without one, or whose chain cannot be read."""
    try:
        chain = read_receipts(run_dir)
    except DataError:
        return None
    return chain[-1] if chain else None


def covered_offsets(chain: Sequence[Receipt]) -> dict[str, int]:
    """Path in the run directory -> up to where the chain covers it. Pure."""
    return {name: part.end for receipt in chain for name, part in receipt.line.files.items()}


def growing_files(run_dir: Path) -> dict[str, int]:
    """Path in the run directory -> length of each file that only grows, without a torn last line. Raises OSError."""
    run = RunPaths(run_dir)
    lines = [path for path in (*run.event_files(), run.metrics, run.evals) if path.is_file()]
    sizes = {path: path.stat().st_size for path in sorted(run.journal.glob("segment-*.journal"))}
    sizes |= {path: jsonl.whole_lines(path) for path in lines}
    return {path.relative_to(run_dir).as_posix(): size for path, size in sizes.items() if size}


def _gained(run_dir: Path, covered: Mapping[str, int]) -> dict[str, CoveredRange]:
    found: dict[str, CoveredRange] = {}
    for name, end in growing_files(run_dir).items():
        begin = covered.get(name, 0)
        if end > begin:
            path = run_dir / name
            atomic.sync(path)
            digest = sha256_of_range(path, begin, end)
            if digest is None:
                raise DataError(f"{path} was cut while its receipt was taken")
            found[name] = CoveredRange(begin=begin, end=end, sha256=digest)
    return found


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Until the end of the block or of this process: trainer and command extend one chain."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
