"""Checks the chain of receipts against the files that it covers, and one receipt that was given out."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rundir.file_digests import sha256_of_range
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.receipts import CoveredRange, Receipt, covered_offsets, growing_files, read_receipts

_HEX = re.compile(r"[0-9a-fA-F]{64}")
_EVENTS = "events/"
_LAUNCH = "events/launch-"
_SEGMENT = "journal/segment-"
Ranges = Mapping[tuple[int, str], str | None]
"""(line's place in the chain, file) -> hex sha256 of the covered range; None if the file is shorter or gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundChain:
    """The chain as it lies in the run directory, and what it covers."""

    receipts: Sequence[Receipt]
    ranges: Ranges
    sizes: Mapping[str, int]
    """File that only grows -> its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptVerdict:
    """What became of a run since a receipt was taken."""

    problems: tuple[str, ...]
    note: str
    """That the receipt holds, and up to where; empty if it is unknown."""
    is_head: bool
    """Nothing that it stands for may have changed: the run did not go on after it."""


def checked_receipt(text: str) -> str:
    """A receipt that a user gave, or the empty text for none. Raises ConfigError for what is no receipt. Pure."""
    if text and not _HEX.fullmatch(text):
        raise ConfigError(f"--receipt {text}: give the 64 hex digits that the run's end, or `headrace status`, printed")
    return text.lower()


def read_chain(run_dir: Path, problems: list[str]) -> FoundChain:
    """Reads the chain and hashes what it covers, in blocks; what cannot be read is added to `problems`."""
    chain: list[Receipt] = []
    sizes: dict[str, int] = {}
    ranges: dict[tuple[int, str], str | None] = {}
    try:
        chain = read_receipts(run_dir)
        sizes = growing_files(run_dir)
        for place, receipt in enumerate(chain):
            for name, part in receipt.line.files.items():
                ranges[place, name] = _digest(run_dir, name, part)
    except (DataError, OSError) as error:
        problems.append(str(error))
    return FoundChain(receipts=chain, ranges=ranges, sizes=sizes)


def _digest(run_dir: Path, name: str, part: CoveredRange) -> str | None:
    path = run_dir / name
    # A line could name any file of the machine.
    if not path.resolve().is_relative_to(run_dir.resolve()) or not path.is_file():
        return None
    return sha256_of_range(path, part.begin, part.end)


def chain_holds(found: FoundChain) -> Iterator[str]:
    """Each line follows the one before, and the files have the bytes that the lines cover. Pure."""
    previous, covered = "", dict[str, int]()
    named: set[str] = set()
    for place, receipt in enumerate(found.receipts):
        where = f"receipts.jsonl line {place + 1}"
        if receipt.line.previous != previous:
            yield f"{where} does not follow the line before it"
        previous = receipt.value
        for name, part in receipt.line.files.items():
            if part.begin != covered.get(name, 0) or part.end <= part.begin:
                yield f"{where} covers {name} from {part.begin} to {part.end}, not from {covered.get(name, 0)} on"
            covered[name] = part.end
            if found.ranges.get((place, name)) == part.sha256 or name in named:
                continue
            named.add(name)
            if found.ranges.get((place, name)) is None:
                yield f"{name} is shorter than its receipt of step {receipt.line.step} covers, or gone"
            else:
                yield (
                    f"{name} was changed between byte {part.begin} and {part.end}, which the receipt of step "
                    f"{receipt.line.step} covers"
                )


def place_of(found: FoundChain, value: str) -> int | None:
    """The place of a receipt in the chain; None if it is none of it. Pure."""
    return next((place for place, receipt in enumerate(found.receipts) if receipt.value == value), None)


def judge_receipt(found: FoundChain, value: str, last_step: int, *, stage_began: bool = False) -> ReceiptVerdict:
    """What the receipt `value` proves. `last_step`: that of the run now. Pure.

    `stage_began`: a later life of a stage without a journal began. The rest of the chain is judged by `chain_holds`.
    """
    place = place_of(found, value)
    if place is None:
        problem = (
            f"the receipt {value[:12]} is none of this run: files that it covered were changed, and "
            f"{RunPaths.receipts.name} with them, or it is another run's"
        )
        return ReceiptVerdict(problems=(problem,), note="", is_head=True)
    line = found.receipts[place].line
    covered = covered_offsets(found.receipts[: place + 1])
    grown = {name: size - covered.get(name, 0) for name, size in found.sizes.items() if size > covered.get(name, 0)}
    segment = max((name for name in covered if name.startswith(_SEGMENT)), default="")
    new_life = stage_began or any(name.startswith(_SEGMENT) and name > segment for name in grown)
    problems: tuple[str, ...] = ()
    if last_step > line.step:
        note = f"the receipt is of step {line.step}, and holds; the run went on to step {last_step}"
    elif new_life:
        note = f"the receipt is of step {line.step}, and holds; a later life of the trainer has trained no further step"
    elif line.by == "command":
        is_started = any(name.startswith(_LAUNCH) and name not in covered for name in grown)
        # A start that ends before the trainer opens a life writes logs of its own, and the metrics of steps replayed.
        logs = {name for name in grown if name.startswith(_EVENTS) and name not in covered}
        own = (logs | ({RunPaths.metrics.name} & grown.keys())) if is_started else set[str]()
        problems = tuple(
            f"{name} has gained {gained} bytes since the run's last process ended"
            for name, gained in grown.items()
            if name not in own
        )
        note = f"the receipt of step {line.step} covers the whole run"
        if own:
            note = (
                f"the receipt of step {line.step} holds; a later start of the run has trained nothing, and "
                f"{sum(grown[name] for name in own)} bytes that it wrote are not covered"
            )
    else:
        note = (
            f"the receipt of step {line.step} holds; {sum(grown.values())} bytes that services wrote after it are not "
            "covered by it"
        )
    return ReceiptVerdict(problems=problems, note=note, is_head=not (last_step > line.step or new_life))
