"""Reads files of JSON lines strictly: any line but a record is a problem with file and line, a torn end is not."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.wire.rundir import jsonl
from headrace.wire.rundir.events import confined_fault
from headrace.wire.rundir.jsonl import Record

_SHOWN = 60
TRAINER = "trainer-"
"""Beginning of the names of the trainer's event logs."""

STRING, INTEGER, STRINGS, INTEGERS, DIGESTS = (
    "a string",
    "an integer",
    "a list of strings",
    "a list of integers",
    "digests",
)
NEEDED: Mapping[str, Mapping[str, str]] = {
    "issued": {"group_index": INTEGER, "group_id": STRING},
    "run_ended": {"version": INTEGER, "open_groups": STRINGS},
    "weights_committed": {"incarnation": INTEGER, "version": INTEGER, "digest": STRING},
    "group_generated": {"group_id": STRING},
    "incarnation_opened": {"incarnation": INTEGER},
    "batch": {"step": INTEGER, "digest": STRING},
    "dropped": {"group_id": STRING},
    "step_done": {"step": INTEGER, "weights_digest": STRING},
    "step_recorded": {"step": INTEGER, "rollouts": STRING, "rollouts_from": INTEGER},
    "stage_began": {"step": INTEGER, "config": DIGESTS},
    "checkpoint_saved": {"step": INTEGER, "manifest": STRING, "kept": INTEGERS},
    "exported": {"weights_sha256": STRING},
    "config_written": {"config": DIGESTS},
}
"""Event -> the fields that the check reads, as the oldest run directories have them, and what each must be."""
LATER: Mapping[str, Mapping[str, str]] = {
    "issued": {"min_version": INTEGER},
    "incarnation_opened": {"config": DIGESTS},
    "exported": {"step": INTEGER, "files": DIGESTS},
}
"""Fields that older run directories lack; where one is there it must be right."""


def numbered_records(path: Path, name: str, problems: list[str]) -> Iterator[tuple[int, Record]]:
    """(line number, record) of a file, one line in memory at a time; what is none is a problem.

    `name` is what problems call the file. A last line without an end is torn: a crash leaves one, it is passed over.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                record = jsonl.parse(line)
                if record is None:
                    shown = line[:_SHOWN].decode(errors="backslashreplace").rstrip()
                    problems.append(f"{name} line {number} is not a JSON object: {shown!r}")
                else:
                    yield number, record
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(f"{name} cannot be read: {error.strerror or error}")


def missing_field(event: Record) -> str:
    """What an event lacks for the check, in words; empty if it is whole. Pure."""
    name = event.get("event")
    if not isinstance(name, str):
        return "has no name of an event"
    for key, kind in NEEDED.get(name, {}).items():
        if not _is(event.get(key), kind):
            return f"({name}) has no {key}, which is {kind}"
    for key, kind in LATER.get(name, {}).items():
        if key in event and not _is(event[key], kind):
            return f"({name}) has another {key} than {kind}"
    return ""


def fault_of(path: Path, event: Record) -> str:
    """Why an event of the log `path` does not count, in words; empty if it does. Pure."""
    return confined_fault(path, event) or missing_field(event)


def _is(value: object, kind: str) -> bool:
    if kind in (STRINGS, INTEGERS):
        one = str if kind == STRINGS else int
        return isinstance(value, list) and all(type(each) is one for each in value)
    if kind == DIGESTS:
        return isinstance(value, dict) and all(type(each) is str for each in value.values())
    return type(value) is (str if kind == STRING else int)
