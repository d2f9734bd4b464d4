"""Whether a completion is JSON of a given shape: the whole of it, or its last fenced block.

A schema and a completion together may keep a validator busy for ever, so it works in processes that are killed.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field, model_validator

from headrace.services.reward.scorer import Context, Reads, Sample, Scorer, Verdict
from headrace.services.reward.scorers.answers.keys import column
from headrace.services.reward.scorers.json.check import Checker
from headrace.services.reward.scorers.rules.functions import said as said_by
from headrace.services.reward.workers.errors import JobDiedError, JobError, JobTimeoutError, WorkerError
from headrace.services.reward.workers.pool import WorkerPool
from headrace.wire.config.settings import Table
from headrace.wire.errors import ConfigError
from headrace.wire.process.lifecycle import wait_for

_MEMORY_MB = 1024

Pair = tuple[str, str]
"""The schema's text, and the completion."""


class JsonSchemaTable(Table):
    """Options of `json_schema`: where the schema is, one of the three, and a deadline."""

    schema_: dict[str, object] | bool | None = Field(None, alias="schema")
    """The schema itself."""
    file: Path | None = None
    """A file with it."""
    column: str | None = None
    """The data column with the row's own: an object, or its text."""
    timeout_s: float = Field(2.0, gt=0)
    """Processor time for one completion; one that takes longer does not validate."""

    @model_validator(mode="after")
    def _is_one(self) -> "JsonSchemaTable":
        if sum(source is not None for source in (self.schema_, self.file, self.column)) != 1:
            raise ValueError("give one of schema, file and column")
        return self


def build(options: Mapping[str, object], context: Context) -> Scorer:
    """Raises ConfigError for a schema that is none."""
    table = context.options(JsonSchemaTable, options)
    if table.column is not None:
        return JsonSchemaScorer(table, None, context)
    schema = table.schema_ if table.file is None else _from_file(table.file, context)
    try:
        Checker(schema)
    except ValueError as error:
        raise ConfigError(f"{context.component}: options.{'file' if table.file else 'schema'}: {error}") from error
    return JsonSchemaScorer(table, json.dumps(schema), context)


class JsonSchemaScorer(Scorer):
    """1 if the completion validates, else 0."""

    low, high = 0.0, 1.0
    reads: Reads = "answer"
    version = "2"

    def __init__(self, table: JsonSchemaTable, fixed: str | None, context: Context) -> None:
        """`fixed` is the schema's text, where all rows have the same."""
        self._table, self._fixed, self._context = table, fixed, context
        self._pool = WorkerPool(
            "headrace.services.reward.scorers.json.child:serve",
            processes=context.processes,
            deadline_s=table.timeout_s,
            what=f"{context.component}: the validation of a completion",
            memory_mb=_MEMORY_MB,
        )

    async def load(self) -> None:
        """Starts its worker processes."""
        await self._pool.start()

    async def close(self) -> None:
        """Ends them."""
        await self._pool.close()

    def problem(self, columns: Mapping[str, object]) -> str | None:
        """Why the row's schema could never be followed."""
        try:
            Checker(json.loads(self._schema(columns))).probe()
        except (KeyError, ValueError, RecursionError, TimeoutError) as error:
            return said_by(error)
        return None

    async def score(self, samples: Sequence[Sample]) -> Sequence[Verdict]:
        """One verdict a sample; equal ones are validated once."""
        seen = [self._look(sample) for sample in samples]
        pairs = list(dict.fromkeys(one for one in seen if isinstance(one, tuple)))
        # Each wait inside is bounded; this bounds their sum, also behind the other groups' completions.
        most = self._context.timeout_s + 2 * self._pool.longest_s * len(pairs) * self._context.concurrency
        work = asyncio.gather(*(self._verdict(*pair) for pair in pairs))
        found = await wait_for(work, most, f"{self._context.component}: the validation of a group's completions")
        known = dict(zip(pairs, found, strict=True))
        return [known[one] if isinstance(one, tuple) else one for one in seen]

    def _look(self, sample: Sample) -> Pair | Verdict:
        try:
            return self._schema(sample.columns), sample.completion
        except (KeyError, ValueError, RecursionError) as error:
            return Verdict.failure(said_by(error))

    def _schema(self, columns: Mapping[str, object]) -> str:
        if self._fixed is not None:
            return self._fixed
        value = column(columns, str(self._table.column))
        return json.dumps(json.loads(value) if isinstance(value, str) else value)

    async def _verdict(self, schema: str, completion: str) -> Verdict:
        try:
            found = await self._pool.run_fairly({"schema": schema, "text": completion})
        except (JobTimeoutError, JobDiedError, JobError) as error:
            if isinstance(error, JobError) and error.kind == "TimeoutError":
                return Verdict.failure(str(error))  # The machine was too busy, which is not the sample's fault.
            return await self._blame(schema, error)
        except WorkerError as error:
            return Verdict.failure(str(error))
        if "broken" in found:
            return Verdict.failure(str(found["broken"]))
        right, parses = float(not found["why"]), float(bool(found["parses"]))
        return Verdict(value=right, reason=str(found["why"]), parts={"parses": parses, "validates": right})

    async def _blame(self, schema: str, error: WorkerError) -> Verdict:
        """The completion is to blame for a validation without end only where the schema alone can be followed."""
        try:
            found = await self._pool.run_fairly({"schema": schema})
        except WorkerError as own:
            return Verdict.failure(f"the schema cannot be followed: {own}")
        if "broken" in found:
            return Verdict.failure(str(found["broken"]))
        return Verdict(value=0.0, reason=str(error), parts={"validates": 0.0})


def _from_file(path: Path, context: Context) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{context.component}: options.file: {path}: {error}") from error
