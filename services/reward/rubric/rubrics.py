"""All rubrics of a run: one for each task that has its own, and one for the rest. Equal scorers are made once."""

import asyncio
import dataclasses
import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.services.reward.endpoint import together
from headrace.services.reward.rubric.circuit import Circuit
from headrace.services.reward.rubric.reasoning import answer_start, opened_by
from headrace.services.reward.rubric.rubric import Result, Rubric, digest
from headrace.services.reward.rubric.scorer_slot import ScorerSlot
from headrace.services.reward.scorer import Context, Sample, Scorer
from headrace.services.reward.scorers.registry import build_scorer
from headrace.services.reward.settings import CombinationTable, RewardTable, ScorerTable


class Rubrics:
    """Scores samples of any task. Built once; `load` before the first score, `close` at the end."""

    def __init__(self, table: RewardTable, context: Context) -> None:
        """Raises ConfigError naming rubric, scorer and what is wrong. Loads nothing."""
        self._table, self._context = table, context
        self._slots: dict[str, ScorerSlot] = {}
        self._default = self._rubric("[reward]", table, table.scorers)
        self._tasks = {
            name: self._rubric(f"[reward.tasks.{name}]", task, task.scorers) for name, task in table.tasks.items()
        }

    @property
    def slots(self) -> list[ScorerSlot]:
        """Every scorer, once."""
        return list(self._slots.values())

    @property
    def names(self) -> list[str]:
        """Components of all rubrics, each once, in the order of the config."""
        return list(dict.fromkeys(name for rubric in self._all() for name in rubric.names))

    def task_of(self, columns: Mapping[str, object], task: str = "") -> str:
        """The task given, or else the one that a row's column names."""
        return task or str(columns.get(self._table.task_column, ""))

    def rubric_of(self, columns: Mapping[str, object], task: str = "") -> Rubric:
        """The rubric of a task, or of a row's."""
        return self._tasks.get(self.task_of(columns, task), self._default)

    def versions(self, columns: Mapping[str, object], task: str = "") -> dict[str, str]:
        """Scorer -> version, of a rubric."""
        return self.rubric_of(columns, task).versions()

    def version(self, columns: Mapping[str, object], versions: Mapping[str, str], task: str = "") -> str:
        """Version of a rubric: changes with its config and with any of its scorers' `versions`."""
        table = self._table.tasks.get(self.task_of(columns, task))
        tables = self._table.scorers if table is None else table.scorers
        return digest(tables, self._table if table is None else table, versions)

    async def load(self, *, only_checked: bool = False) -> None:
        """Makes every scorer ready, or only those that are `checked_by_loading`.

        Raises ConfigError naming the scorer; what was started is ended then.
        """
        scorers = [slot.scorer for slot in self.slots if slot.scorer.checked_by_loading or not only_checked]
        try:
            await together([scorer.load() for scorer in scorers])
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends every scorer."""
        await asyncio.gather(*(slot.scorer.close() for slot in self.slots), return_exceptions=True)

    async def score(self, samples: Sequence[Sample], *, patient: bool) -> list[Result]:
        """One result a sample, in order. Raises CircuitOpenError, ScorerOutageError (see `ScorerSlot.judge`).

        Samples of one group are given to a scorer together, those of no group one by one.
        """
        samples = self.seen(samples)
        parts: dict[tuple[int, str, int], list[int]] = defaultdict(list)
        rubrics = [self.rubric_of(sample.columns, sample.task) for sample in samples]
        for number, (sample, rubric) in enumerate(zip(samples, rubrics, strict=True)):
            parts[id(rubric), sample.group, 0 if sample.group else number].append(number)
        scoring = [
            rubrics[numbers[0]].score([samples[number] for number in numbers], patient=patient)
            for numbers in parts.values()
        ]
        found = await asyncio.gather(*scoring, return_exceptions=True)
        results: dict[int, Result] = {}
        for numbers, some in zip(parts.values(), found, strict=True):
            if isinstance(some, BaseException):
                raise some
            results |= dict(zip(numbers, some, strict=True))
        return [
            dataclasses.replace(results[number], answer_start=sample.answer_start)
            for number, sample in enumerate(samples)
        ]

    def seen(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples with the border between thoughts and answer, by the tags of the run."""
        tags, found = self._table.reasoning_tags, []
        for one in samples:
            opened = opened_by(one.prompt, one.columns.get("prompt_messages"), tags)
            start = answer_start(one.completion, tags, opened=bool(opened))
            found.append(dataclasses.replace(one, opened_by=opened, answer_start=start))
        return found

    def room(self) -> int | None:
        """How many groups may be tried now; None = any number. 0 while a scorer is down."""
        now = time.monotonic()
        rooms = [room for slot in self.slots if (room := slot.circuit.room(now)) is not None]
        return min(rooms) if rooms else None

    def trouble(self) -> str | None:
        """Which scorers are down, and why; None = all work."""
        down = [f"{slot.name} is down: {slot.circuit.trouble}" for slot in self.slots if slot.circuit.trouble]
        return "; ".join(down) or None

    def problems(self, columns: Mapping[str, object], task: str = "") -> list[str]:
        """Why a data row with these columns could never be scored."""
        rubric = self.rubric_of(columns, task)
        found = [(slot.name, slot.scorer.problem(columns)) for slot in rubric.slots()]
        return [f"{name}: {words}" for name, words in found if words]

    def _all(self) -> list[Rubric]:
        return [self._default, *self._tasks.values()]

    def _rubric(self, where: str, table: CombinationTable, scorers: Sequence[ScorerTable]) -> Rubric:
        return Rubric(table, [(scorer, self._member(where, scorer)) for scorer in scorers], where=where)

    def _member(self, where: str, table: ScorerTable) -> ScorerSlot | Rubric:
        if table.members:
            return self._rubric(f"{where} {table.component}", table, table.members)
        key = json.dumps(
            [table.name, table.component, table.range, table.text, table.options], sort_keys=True, default=str
        )
        if key not in self._slots:
            self._slots[key] = self._slot(table)
        return self._slots[key]

    def _slot(self, table: ScorerTable) -> ScorerSlot:
        scorer = self._build(table)
        circuit = Circuit(table.component, failures_in_row=self._table.failures_in_row, outage_s=self._table.outage_s)
        return ScorerSlot(table.component, scorer, circuit, value_range=table.range, reads=table.text or scorer.reads)

    def _build(self, table: ScorerTable) -> Scorer:
        return build_scorer(table.name, table.options, dataclasses.replace(self._context, component=table.component))


def context_of(table: RewardTable, *, run_dir: Path | None = None) -> Context:
    """What the scorers of a config are built with."""
    return Context(
        component="",
        timeout_s=table.timeout_s,
        concurrency=table.concurrency,
        processes=table.processes,
        user_path=table.path,
        allow_hosts=table.allow_hosts,
        place=table.answer,
        run_dir=run_dir,
    )
