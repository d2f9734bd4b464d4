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
Ranges = Mapping[tuple[int, str], str | None]
"""(line's place in the chain, file) -> hex sha256 of the covered range; None if the file is shorter or gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundChain:
    """The chain as it lies in the run directory, and what it covers."""

    receipts: Sequence[Receipt]
    ranges: Ranges
    sizes: Mapping[str, int]
    """File that only grows -> its length."""


def checked_receipt(text: str) -> str:
    """A receipt that a user gave, or the empty text for none. Raises ConfigError for any other text. Pure."""
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


def judge_receipt(found: FoundChain, value: str, last_step: int) -> tuple[str, str]:
    """(problem, note) of the receipt `value`, one of them empty. `last_step`: the run's last step now. Pure.

    The rest of the chain is judged by `chain_holds`.
    """
    place = next((place for place, receipt in enumerate(found.receipts) if receipt.value == value), None)
    if place is None:
        problem = (
            f"the receipt {value[:12]} is none of this run: files that it covered were changed, and "
            f"{RunPaths.receipts.name} with them, or it is another run's"
        )
        return problem, ""
    step, covered = found.receipts[place].line.step, covered_offsets(found.receipts[: place + 1])
    if last_step > step:
        return "", f"the receipt is of step {step}, and holds; the run went on to step {last_step}"
    grown = sum(max(size - covered.get(name, 0), 0) for name, size in found.sizes.items())
    if grown:
        return "", f"the receipt of step {step} holds; {grown} bytes that were written after it are not covered by it"
    return "", f"the receipt of step {step} covers the whole run"
