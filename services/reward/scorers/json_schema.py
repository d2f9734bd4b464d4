"""Whether a completion is JSON of a given shape: the whole of it, or its last fenced block."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from services.reward.scorers.base import Context, Sample, Scorer, Verdict
from services.reward.scorers.functions import RuleScorer
from services.reward.scorers.json_check import Checker
from services.reward.scorers.rules import column
from wire.errors import ConfigError
from wire.settings import Table

_FENCE = "```"
_LONGEST = 1 << 20


class JsonSchemaTable(Table):
    """Options of `json_schema`: where the schema is, one of the three."""

    schema_: dict[str, Any] | bool | None = Field(None, alias="schema")
    """The schema itself."""
    file: Path | None = None
    """A file with it."""
    column: str | None = None
    """The data column with the row's own: an object, or its text."""

    @model_validator(mode="after")
    def _is_one(self) -> "JsonSchemaTable":
        if sum(source is not None for source in (self.schema_, self.file, self.column)) != 1:
            raise ValueError("give one of schema, file and column")
        return self


def build(options: Mapping[str, Any], context: Context) -> Scorer:
    """Raises ConfigError for a schema that is none."""
    table = context.options(JsonSchemaTable, options)
    if table.column is not None:
        fixed = None
    else:
        schema = table.schema_ if table.file is None else _from_file(table.file, context)
        try:
            fixed = Checker(schema)
        except ValueError as error:
            raise ConfigError(f"{context.component}: options.{'file' if table.file else 'schema'}: {error}") from error

    def rule(sample: Sample) -> Verdict:
        checker = fixed or Checker(_of_row(column(sample.columns, str(table.column))))
        return _score(sample.completion, checker)

    return RuleScorer(rule, {}, context, low=0.0, high=1.0)


def _score(completion: str, checker: Checker) -> Verdict:
    try:
        value = _value(completion)
    except (ValueError, RecursionError) as error:
        return Verdict(value=0.0, reason=f"no JSON: {error}", parts={"parses": 0.0, "validates": 0.0})
    wrong = checker.problem(value)
    right = float(wrong is None)
    return Verdict(value=right, reason=wrong or "", parts={"parses": 1.0, "validates": right})


def _value(completion: str) -> Any:
    text = completion.strip()
    if len(text) > _LONGEST:
        raise ValueError(f"more than {_LONGEST} characters")
    try:
        return json.loads(text, parse_constant=_no_number)
    except ValueError:
        fenced = _last_fenced(text)
        if fenced is None:
            raise
    return json.loads(fenced, parse_constant=_no_number)


def _last_fenced(text: str) -> str | None:
    """What stands between the last two fences: the one that opens says json, or nothing."""
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if line.lstrip().startswith(_FENCE)]
    for begin, end in reversed(list(itertools.pairwise(fences))):
        if lines[begin].strip(" \t`").lower() in ("json", "") and lines[end].strip() == _FENCE:
            return "\n".join(lines[begin + 1 : end])
    return None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _of_row(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _from_file(path: Path, context: Context) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{context.component}: options.file: {path}: {error}") from error
