"""Dead letters: groups that were given up, the reasons, and the re-issuing of their prompts."""

import asyncio
import json
from collections.abc import Sequence

from headrace.services.orchestrator.issuing.issuer import Issuer
from headrace.services.orchestrator.issuing.prompts import PromptRow
from headrace.services.orchestrator.state.run_state import RunPhase, RunState
from headrace.services.orchestrator.state.store import Store
from headrace.wire.api.queues import DeadLetter, DeadLetterPage, DeadLetterRow
from headrace.wire.contracts import (
    DropReason,
    Header,
    Message,
    PromptGroup,
    Purpose,
    ScoredGroup,
    Tombstone,
    decode,
    decode_header,
    group_id,
)
from headrace.wire.errors import ConfigError, ContractError
from headrace.wire.rundir.events import EventLog
from headrace.wire.streams import Broker, Entry, StreamName
from headrace.wire.telemetry.logs import get_logger

log = get_logger("orchestrator.dead")

MOST = 1000
"""Number of newest dead letters that are shown."""
_CHUNK = 8
"""Entries per read: one may have 64 MiB."""
_SHORT = 160


class DeadLetters:
    """Reads the stream on demand and caches the entries."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        issuer: Issuer,
        rows: Sequence[PromptRow],
        state: RunState,
        events: EventLog,
        run_id: str,
    ) -> None:
        self._broker = broker
        self._store = store
        self._issuer = issuer
        self._row_of_sample = {row.sample_id: number for number, row in reversed([*enumerate(rows)])}
        self._state = state
        self._events = events
        self._run_id = run_id
        self._known: list[DeadLetter] = []
        self._lock = asyncio.Lock()

    async def page(self, offset: int, limit: int) -> DeadLetterPage:
        """One page, newest first; `total` includes letters beyond the limit. Raises TransientError without a broker."""
        known, total = await self._look()
        requeued = self._store.requeued()
        rows = (
            DeadLetterRow(**one.model_dump(), requeued=one.group_index in requeued)
            for one in known[offset : offset + limit]
        )
        return DeadLetterPage(total=total, rows=tuple(rows))

    async def requeue(self, entry_id: str, who: str) -> str:
        """Schedules the prompt of a dead group to be issued again, as a new group, when credit allows. Idempotent.

        Raises ConfigError if that is impossible, TransientError without a broker.
        """
        known, _ = await self._look()
        letter = next((one for one in known if one.id == entry_id), None)
        if letter is None:
            raise ConfigError(f"there is no dead letter {entry_id!r} (any more)")
        index = self._check(letter)
        row = self._row(letter, index)
        if self._store.requeue(entry_id, index, row):
            facts = {"group_id": letter.group_id, "dead_index": index, "row": row}
            self._events.append("requeued", entry=entry_id, **facts, who=who)
            log.info("requeued", entry=entry_id, group=letter.group_id, who=who)
            await self._state.notify()
        return self._said(letter, index)

    def _check(self, letter: DeadLetter) -> int:
        if letter.group_index is None:
            raise ConfigError("its group is unknown: a missing group is found and issued again automatically")
        if letter.purpose != Purpose.TRAIN:
            raise ConfigError(
                "it belongs to an evaluation of an older version; the next evaluation issues the prompt again"
            )
        if self._state.phase in (RunPhase.FINISHED, RunPhase.FAILED, RunPhase.STOPPED):
            raise ConfigError(f"the run is {self._state.phase}: nothing more is issued")
        step = self._store.step_of(letter.group_index)
        if step:
            raise ConfigError(f"{letter.group_id} was trained in step {step}: only a copy of it was buried")
        if letter.reason == DropReason.POISON and step is None:
            raise ConfigError(f"{letter.group_id} is open: a group damaged in transit is issued again automatically")
        return letter.group_index

    def _row(self, letter: DeadLetter, index: int) -> int:
        """The prompt's row, by its sample id; by the run's prompt order if the body is damaged."""
        return self._row_of_sample.get(letter.sample_id, self._issuer.row_of(index))

    def _said(self, letter: DeadLetter, index: int) -> str:
        given = self._store.requeued().get(index)
        if given is None:
            return f"the prompt of {letter.group_id} is issued again as soon as credit allows"
        return f"the prompt of {letter.group_id} is issued again as {group_id(self._run_id, given)}"

    async def _look(self) -> tuple[list[DeadLetter], int]:
        async with self._lock:
            total = (await self._broker.stats(StreamName.DEAD)).length
            if total < len(self._known):
                self._known = []  # The broker lost its data.
            newest = self._known[0].id if self._known else ""
            fresh: list[DeadLetter] = []
            before = ""
            while len(fresh) < MOST:
                entries = await self._broker.newest(StreamName.DEAD, before=before, count=_CHUNK)
                new = [entry for entry in entries if not _is_known(entry.id, newest)]
                fresh += await asyncio.to_thread(_letters, new)
                if len(new) < _CHUNK:
                    break
                before = new[-1].id
            self._known = [*fresh, *self._known][:MOST]
            return self._known, total


def _is_known(entry_id: str, newest: str) -> bool:
    return bool(newest) and _number(entry_id) <= _number(newest)


def _number(entry_id: str) -> tuple[int, int]:
    left, _, right = entry_id.partition("-")
    return int(left), int(right or 0)


def _letters(entries: Sequence[Entry]) -> list[DeadLetter]:
    return [_letter(entry) for entry in entries]


def _letter(entry: Entry) -> DeadLetter:
    try:
        header: Header | None = decode_header(entry.data)
    except ContractError:
        header = None
    try:
        prompt = _prompt(decode(entry.data))
        damage = ""
    except ContractError as error:
        prompt, damage = None, str(error)
    why = _note(entry.note)
    return DeadLetter(
        id=entry.id,
        t=_number(entry.id)[0] / 1000,
        group_id=header.group_id if header else "",
        group_index=header.group_index if header else None,
        attempt=header.attempt if header else 0,
        purpose=str(header.purpose) if header else "",
        reason=why.get("reason", ""),
        error=why.get("detail", "") or damage,
        service=why.get("service", ""),
        bytes=len(entry.data),
        prompt=prompt.text[:_SHORT] if prompt else "",
        sample_id=prompt.sample_id if prompt else "",
    )


def _prompt(message: Message) -> PromptGroup | None:
    body = message.body
    if isinstance(body, Tombstone):
        return None
    if isinstance(body, PromptGroup):
        return body
    return body.group.prompt if isinstance(body, ScoredGroup) else body.prompt


def _note(text: str) -> dict[str, str]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}
