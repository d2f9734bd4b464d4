"""Where the history of a forked run comes from, and whether both runs still have the same one."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from headrace.wire.journal import IncarnationRecord, JournalDamagedError, JournalRecord, StepDoneRecord, read_journal
from headrace.wire.rundir.layout import RunPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """`RUN/config/fork.json`."""

    source: str
    """Path of the other run directory."""
    step: int
    """Its last step that counts here."""
    weights_digest: str
    """Digest of the weights after that step."""


def fork_holds(run_dir: Path, problems: list[str]) -> str:
    """Adds what contradicts the fork to `problems`; returns a note, empty for a run that was not forked."""
    path = RunPaths(run_dir).fork
    try:
        fork = TypeAdapter(Fork).validate_json(path.read_bytes())
    except FileNotFoundError:
        return ""
    except (ValidationError, OSError) as error:
        problems.append(f"{path} cannot be read: {error}")
        return ""
    here, there = _digest(run_dir, fork.step), _digest(Path(fork.source), fork.step)
    for digest, place in ((here, run_dir), (there, fork.source)):
        if digest not in ("", fork.weights_digest):
            problems.append(f"step {fork.step} of {place} is not the one at which the run was forked: other weights")
    if not here:
        problems.append(f"the journal has no step {fork.step}, after which the run was forked")
    gone = "" if there else ", whose journal is not there any more"
    return f"forked from {fork.source} after step {fork.step}{gone}"


def weights_after(records: Iterable[JournalRecord], step: int) -> tuple[int, str]:
    """The number of records up to the first with the weights after `step`, and their digest; 0 if there is none."""
    for count, one in enumerate(records, 1):
        match one.record:
            case StepDoneRecord(step=of, weights_digest=digest) | IncarnationRecord(version=of, weights_digest=digest):
                if of == step > 0:
                    return count, digest
    return 0, ""


def _digest(run_dir: Path, step: int) -> str:
    try:
        return weights_after(read_journal(RunPaths(run_dir).journal), step)[1]
    except (JournalDamagedError, OSError):
        return ""
