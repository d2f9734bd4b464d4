"""Evaluation on held-out prompts through the same rollout path, every N steps, bounded by a deadline."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.services.orchestrator import metrics
from headrace.services.orchestrator.issuing.eval_result import numbers_of, was_graded
from headrace.services.orchestrator.issuing.eval_rollouts import write_evaluation
from headrace.services.orchestrator.issuing.messages import eval_prompt
from headrace.services.orchestrator.issuing.prompt_stream import PromptStream, live_headers
from headrace.services.orchestrator.issuing.prompts import PromptRow
from headrace.services.orchestrator.settings import EvalTable, OrchestratorSettings
from headrace.services.orchestrator.state.store import Store
from headrace.wire.contracts import (
    DropReason,
    Message,
    Purpose,
    Score,
    ScoredGroup,
    Tombstone,
    decode,
    encode,
)
from headrace.wire.errors import TransientError
from headrace.wire.rundir.evals import VERSION, EvalLog, named, sets_of
from headrace.wire.rundir.jsonl import Record
from headrace.wire.streams import EVALUATION_FLOW, Broker, Put, StreamName
from headrace.wire.streams.worker import Worker
from headrace.wire.telemetry.logs import get_logger

log = get_logger("orchestrator.evaluation")


@dataclass(frozen=True, slots=True)
class EvalSet:
    """One set, and where its prompts are."""

    table: EvalTable
    prompts: Sequence[int]
    """Numbers of its rows in `eval.parquet`."""


class Evaluation:
    """Runs one evaluation at a time; results are in the store, so it resumes after a restart."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        rows: Sequence[PromptRow],
        store: Store,
        broker: Broker,
        prompts: PromptStream,
    ) -> None:
        self._settings = settings
        self._rows = rows
        self._sets = [EvalSet(table, _numbers(table, rows)) for table in settings.eval]
        self._store = store
        self._broker = broker
        self._prompts = prompts
        self._log = EvalLog(settings.run_dir)
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.results: list[Record] = list(self._log.known)
        """Lines of `evals.jsonl`."""
        self.waiting_for = ""
        self.since, self.until = 0.0, 0.0
        """Start and deadline (monotonic seconds) of the current evaluation, or of the last one."""
        self.version = 0
        """The version being evaluated, or evaluated last."""

    @property
    def running(self) -> bool:
        """Whether an evaluation is in progress."""
        return self._task is not None and not self._task.done()

    def due(self, version: int, max_steps: int) -> bool:
        """Whether to evaluate a set at this version, which has not been evaluated yet."""
        return bool(self._due(version, max_steps)) and all(row[VERSION] != version for row in self.results)

    def _due(self, version: int, max_steps: int) -> list[EvalSet]:
        """The sets that are evaluated at a version: the first unless switched off, each `every` steps, the last."""
        return [one for one in self._sets if one.prompts and _is_due(one.table, version, max_steps)]

    def start(self, version: int, max_steps: int) -> None:
        """Starts the evaluation of `version` in the background; does nothing while one is running."""
        if not self.running:
            self.version = version
            self._task = asyncio.create_task(self._evaluate(version, self._due(version, max_steps)))

    async def finished(self, within_s: float | None = None) -> None:
        """Returns when no evaluation is running (at its deadline at the latest), or after `within_s` seconds."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within_s)

    async def consume(self, stop: asyncio.Event) -> None:
        """Reads the `evaluated` stream until `stop`."""
        worker = Worker(
            self._broker,
            StreamName.EVALUATED,
            "orchestrator",
            self._take,
            service="orchestrator",
            lease_s=self._settings.broker.lease_s,
            capacity=lambda in_flight: 64 - in_flight,
            failure=DropReason.POISON,
        )
        await worker.run(stop)

    async def _take(self, message: Message) -> list[Put]:
        version = int(message.header.group_id.rpartition("/e")[2].partition("-")[0])
        body = message.body
        counts = isinstance(body, Tombstone) or (isinstance(body, ScoredGroup) and _sampled_by(body, version))
        self._store.keep_evaluated(version, message.header.group_index, encode(message) if counts else b"")
        self._arrived.set()
        return []

    async def _evaluate(self, version: int, sets: Sequence[EvalSet]) -> None:
        deadline_s = max(one.table.deadline_s for one in sets)
        await self._forget(but=version)
        try:
            with metrics.EVALUATING(deadline_s):
                await self._collect(version, sets, deadline_s)
        finally:
            self.waiting_for = ""
        # Of a large set all of it takes seconds, in which no lease may expire.
        entries = {}
        for prompt in self._store.evaluated_prompts(version):
            entries[prompt] = self._store.evaluated(version, prompt)
            await asyncio.sleep(0)
        row = await asyncio.to_thread(self._line, version, sets, entries)
        self.results.append(row)
        self._log.append(row)
        await self._forget()
        metrics.show_evaluation(version, sets_of(row))
        log.info("evaluated", **row)

    async def _forget(self, *, but: int = -1) -> None:
        while self._store.forget_evaluated(but=but):
            await asyncio.sleep(0)

    async def _collect(self, version: int, sets: Sequence[EvalSet], deadline_s: float) -> None:
        """Issues the prompts and waits for their results until the deadline."""
        self.since = time.monotonic()
        self.until = deadline = self.since + deadline_s
        wanted = {prompt: one.table for one in sets for prompt in one.prompts}
        life = ""
        while (done := len(self._store.evaluated_prompts(version) & wanted.keys())) < len(wanted):
            if time.monotonic() >= deadline:
                return
            self.waiting_for = f"evaluation of version {version}: {done} of {len(wanted)} prompts"
            self._arrived.clear()
            try:
                if (generation := await self._broker.generation()) != life:
                    await self._issue_missing(version, wanted)
                    life = generation
                async with asyncio.timeout(0.5):
                    await self._arrived.wait()
            except TransientError as error:
                log.warning("evaluation_waits", error=str(error))
            except TimeoutError:
                continue

    async def _issue_missing(self, version: int, wanted: Mapping[int, EvalTable]) -> None:
        """Issues the prompts that have neither a result nor an entry in a stream."""
        known = self._store.evaluated_prompts(version) | await self._live(version)
        for prompt, table in wanted.items():
            if prompt not in known:
                message = eval_prompt(self._settings, table, self._rows[prompt], prompt=prompt, version=version)
                await self._prompts.put(message)
                metrics.GROUPS_ISSUED.labels("eval").inc()

    async def _live(self, version: int) -> set[int]:
        headers = await live_headers(self._broker, *EVALUATION_FLOW)
        mine = f"/e{version:06d}-"
        return {one.group_index for one in headers if one.purpose is Purpose.EVAL and mine in one.group_id}

    def _line(self, version: int, sets: Sequence[EvalSet], entries: Mapping[int, bytes]) -> Record:
        """The line of `evals.jsonl`, of what came back; writes the evaluation's rollouts."""
        messages = {prompt: decode(entry) for prompt, entry in entries.items() if entry}
        sets_by_prompt = {prompt: one.table.name for one in sets for prompt in one.prompts}
        write_evaluation(self._settings.run_dir, version, messages, sets_by_prompt)
        row: Record = {VERSION: version}
        for table, prompts in ((one.table, one.prompts) for one in sets):
            results = [(self._rows[one].sample_id, _scores(messages.get(one), table.k)) for one in prompts]
            before = [sets_of(line).get(table.name, {}) for line in self.results]
            found = numbers_of(
                results,
                k=table.k,
                component=table.component,
                correct_above=table.correct_above,
                was_graded=was_graded(before),
            )
            row |= named(table.name, found)
        return {**row, "t": round(time.time(), 3)}


def _numbers(table: EvalTable, rows: Sequence[PromptRow]) -> Sequence[int]:
    """Numbers of a set's rows. A file of an older build has one set, without a name."""
    found = [number for number, row in enumerate(rows) if row.set == table.name]
    return found[: table.prompts] if table.prompts else found


def _is_due(table: EvalTable, version: int, max_steps: int) -> bool:
    if version == max_steps:
        return True
    return table.first if version == 0 else table.every > 0 and version % table.every == 0


def _scores(message: Message | None, k: int) -> Sequence[Score]:
    """Scores of a prompt's rollouts; those that nobody could score abstain, and of one that got lost there are none."""
    body = message.body if message else None
    if isinstance(body, ScoredGroup):
        return body.scores
    is_abstained = isinstance(body, Tombstone) and body.reason is DropReason.ABSTAINED
    return [Score(rollout_id="", value=None)] * k if is_abstained else ()


def _sampled_by(scored: ScoredGroup, version: int) -> bool:
    """Whether all tokens were sampled under `version`: replicas may have updated in the meantime."""
    return all(span.version.version == version for rollout in scored.group.rollouts for span in rollout.spans)
