"""Forges the files of a finished run: what an insider with write access to the run directory could change by hand."""

import hashlib
import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from headrace.wire.contracts import ScoredGroup, decode, encode
from headrace.wire.journal import JournalWriter, read_journal, read_lengths
from headrace.wire.journal.framing import MAGIC, frame, unframe
from headrace.wire.journal.records import (
    BatchRecord,
    DroppedRecord,
    IncarnationRecord,
    Record,
    StepDoneRecord,
    pack,
    unpack,
)
from headrace.wire.rundir.file_digests import config_digests
from headrace.wire.rundir.layout import RunPaths

Event = dict[str, Any]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Forger:
    """One copy of a run of a single life, whose files are consistent."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.segment = run / "journal" / "segment-000001.journal"

    # The journal.

    def records(self) -> list[Record]:
        return [unpack(kind, payload, "forged") for kind, payload, _ in unframe(self.segment.read_bytes(), "forged")]

    def write_records(self, records: list[Record]) -> None:
        self.segment.write_bytes(MAGIC + b"".join(frame(*pack(record)) for record in records))

    def change_records(self, change: Callable[[Record], list[Record]]) -> None:
        self.write_records([new for record in self.records() for new in change(record)])

    def change_batch(self, step: int, **values: Any) -> None:
        self.change_records(
            lambda one: [replace(one, **values) if isinstance(one, BatchRecord) and one.step == step else one]
        )

    def change_done(self, step: int, **values: Any) -> None:
        self.change_records(
            lambda one: [replace(one, **values) if isinstance(one, StepDoneRecord) and one.step == step else one]
        )

    def batch(self, step: int) -> BatchRecord:
        return next(one for one in self.records() if isinstance(one, BatchRecord) and one.step == step)

    @property
    def last_step(self) -> int:
        return max(one.step for one in self.records() if isinstance(one, BatchRecord))

    def drop(self, index: int, name: str, reason: str) -> DroppedRecord:
        return DroppedRecord(group_index=index, group_id=name, reason=reason)

    # Events and other lines.

    def event_files(self, service: str) -> list[Path]:
        found = RunPaths(self.run).event_files(service)
        assert found, service
        return found

    def change_events(self, service: str, name: str, change: Callable[[Event], list[Event]]) -> None:
        """Replaces the events of a name, of all logs of a service; at least one must be there."""
        seen = 0
        for path in self.event_files(service):
            lines = []
            for line in path.read_text().splitlines():
                event = json.loads(line)
                seen += event["event"] == name
                lines += change(event) if event["event"] == name else [event]
            path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        assert seen, name

    def add_log(self, name: str, *events: Event) -> None:
        """Writes a new event log."""
        text = "".join(json.dumps({"t": 4.0e9, **event}, separators=(",", ":")) + "\n" for event in events)
        (self.run / "events" / f"{name}.jsonl").write_text(text)

    def last_event(self, name: str, step: int) -> Event:
        """The trainer's last event of a name and step."""
        found = [one for one in self.lines("events/trainer-1.jsonl") if (one["event"], one.get("step")) == (name, step)]
        return found[-1]

    def begin_life(self, number: int, *events: Event) -> None:
        """A further life of the trainer, with its journal segment and log, that records `events`."""
        journal = RunPaths(self.run).journal
        done = [one for one in self.records() if isinstance(one, StepDoneRecord)][-1]
        read_to = read_lengths(list(read_journal(journal)))
        JournalWriter.open(
            journal, incarnation=number, version=done.step, weights_digest=done.weights_digest, read_to=read_to
        ).close()
        opened = {"incarnation": number, "version": done.step, "config": config_digests(self.run)}
        self.add_log(f"trainer-{number}", {"event": "incarnation_opened", **opened}, *events)

    def remove_events(self, service: str, name: str, where: Callable[[Event], bool] = lambda event: True) -> None:
        self.change_events(service, name, lambda event: [] if where(event) else [event])

    def set_event(self, service: str, name: str, step: int | None = None, **values: Any) -> None:
        """Sets values in the events of a name; `step`: only in those of this step."""
        self.change_events(
            service, name, lambda event: [event | values if step is None or event.get("step") == step else event]
        )

    def lines(self, name: str) -> list[Event]:
        return [json.loads(line) for line in (self.run / name).read_text().splitlines()]

    def write_lines(self, name: str, lines: list[Event]) -> None:
        (self.run / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    # Payloads and rollouts.

    def payload(self, step: int) -> Path:
        return self.run / "journal" / "payloads" / self.batch(step).payload

    def write_payload(self, step: int, data: bytes) -> None:
        """With the digest in journal and event."""
        self.payload(step).write_bytes(data)
        self.change_batch(step, digest=sha256(data))
        self.set_event("trainer", "batch", step, digest=sha256(data))

    def raise_rewards(self, step: int) -> None:
        """In the payload, its digest and its event."""
        data, messages = self.payload(step).read_bytes(), []
        while data:
            (length,) = struct.unpack_from("<Q", data)
            message = decode(data[8 : 8 + length])
            assert isinstance(message.body, ScoredGroup)
            scores = tuple(replace(score, value=1.0) for score in message.body.scores)
            messages.append(encode(replace(message, body=replace(message.body, scores=scores))))
            data = data[8 + length :]
        self.write_payload(step, b"".join(struct.pack("<Q", len(one)) + one for one in messages))

    def rollout_file(self, step: int) -> Path:
        return self.run / "rollouts" / f"step-{step:06d}.parquet"

    def raise_rollout_rewards(self, step: int) -> None:
        """In rollouts/ alone."""
        table = parquet.read_table(self.rollout_file(step))
        rewards = pa.array([1.0] * table.num_rows, table.schema.field("reward").type)
        place = table.column_names.index("reward")
        parquet.write_table(table.set_column(place, table.schema.field("reward"), rewards), self.rollout_file(step))

    def remove_payloads(self) -> None:
        shutil.rmtree(self.run / "journal" / "payloads")
        (self.run / "journal" / "payloads").mkdir()

    # Models.

    def checkpoints(self) -> list[Path]:
        return sorted((self.run / "checkpoints").glob("step-*"))

    def flip(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)

    def seal_checkpoint(self, folder: Path) -> None:
        """Writes the manifest of changed files, and its digest into the event."""
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["sha256"] = {name: sha256((folder / name).read_bytes()) for name in manifest["sha256"]}
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
        step = int(folder.name.partition("-")[2])
        self.set_event("trainer", "checkpoint_saved", step, manifest=sha256((folder / "manifest.json").read_bytes()))

    def seal_export(self, weights_sha256: str) -> None:
        """Writes the digests of a changed export into its event."""
        folder = self.run / "export"
        files = {path.name: sha256(path.read_bytes()) for path in folder.iterdir()}
        self.set_event("trainer", "exported", weights_sha256=weights_sha256, files=files)

    def hide_last_step(self) -> None:
        """Everywhere: the run seems to have stopped one step earlier."""
        last = self.last_step
        groups = set(self.batch(last).group_ids)
        kept = [one for one in self.checkpoints() if int(one.name.partition("-")[2]) < last]
        self.change_records(lambda one: [] if getattr(one, "step", 0) == last else [one])
        for service, name in (
            *(("trainer", name) for name in ("batch", "step_done", "step_recorded", "checkpoint_saved")),
            *(("orchestrator", name) for name in ("issued", "publication_committed", "publication")),
            *(("rollout", name) for name in ("group_generated", "weights_committed")),
            ("reward", "group_scored"),
        ):
            self.remove_events(
                service, name, lambda event: last in (event.get("step"), event.get("version"))
                or event.get("group_id") in groups,
            )  # fmt: skip
        self.remove_events("trainer", "exported")
        self.remove_events("orchestrator", "run_ended")
        self.rollout_file(last).unlink()
        shutil.rmtree(self.run / "export")
        for folder in self.checkpoints():
            if folder not in kept:
                shutil.rmtree(folder)
        for name in ("metrics.jsonl", "evals.jsonl"):
            self.write_lines(
                name, [one for one in self.lines(name) if last not in (one.get("step"), one.get("version"))]
            )

    def forget_receipts(self) -> None:
        """Removes the chain of receipts, and the events of the trainer that name some."""
        (self.run / "receipts.jsonl").unlink(missing_ok=True)
        if any(b'"receipt_taken"' in path.read_bytes() for path in (self.run / "events").glob("trainer*.jsonl")):
            for path in self.event_files("trainer"):
                kept = [line for line in path.read_bytes().splitlines(keepends=True) if b'"receipt_taken"' not in line]
                path.write_bytes(b"".join(kept))


__all__ = ["DroppedRecord", "Event", "Forger", "IncarnationRecord", "StepDoneRecord", "sha256"]
