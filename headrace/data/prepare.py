"""The whole preparation: rows -> prompts -> token ids -> held-out split -> two parquet files."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.config.data import DataTable
from headrace.data.held_out import digest
from headrace.data.presets import Message, Prompt, prompt_of
from headrace.data.progress import RowProgress
from headrace.data.render import PromptRenderer, fitting_tokenizer, stop_token_ids
from headrace.data.rows import DataRow
from headrace.data.sets import SetReader, repeated_ids
from headrace.data.unknown import unknown_id, unknown_share
from headrace.services.orchestrator.settings import EvalTable
from headrace.wire.rundir import prompts
from headrace.wire.rundir.layout import RunPaths

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class PreparedData:
    """What was prepared, for the user to see."""

    prompts: int
    eval_prompts: int
    dropped_overlong: int
    dropped_duplicates: int
    """Training prompts that are also held out."""
    longest_prompt: int
    stop_token_ids: tuple[int, ...]
    """Tokens that end a completion."""
    unknown_share: float = 0.0
    """Share of unknown tokens among those of all prompts."""
    begun_twice: int = 0
    """Prompts from which a second beginning-of-text token was taken off."""


@dataclass(frozen=True, slots=True)
class LengthLimits:
    """Limits set by the model and the run."""

    max_prompt_tokens: int
    vocab_size: int
    seed: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """One prompt as the engine gets it."""

    prompt: Prompt
    text: str
    token_ids: list[int]
    messages: list[Message] | None

    @property
    def place(self) -> str:
        """Its row's."""
        return self.prompt.place

    @property
    def tokens(self) -> int:
        """Its length."""
        return len(self.token_ids)


def prepare(
    table: DataTable,
    model: Path,
    limits: LengthLimits,
    out: Path,
    progress: RowProgress | None = None,
    evals: Sequence[EvalTable] = (EvalTable(),),
) -> PreparedData:
    """Writes `prompts.parquet` and `eval.parquet` into `out`, or raises DataError or ConfigError and writes neither."""
    tokenizer = fitting_tokenizer(model, vocab_size=limits.vocab_size)
    stops = tuple(stop_token_ids(model, tokenizer))
    renderer = PromptRenderer(tokenizer, table)

    def rendered(row: DataRow, columns: DataTable) -> list[Rendered]:
        prompt = prompt_of(row, columns)
        found = renderer.ask(prompt.place, prompt.content, prompt.tools)
        return [Rendered(prompt, found.seen.text, found.seen.token_ids.tolist(), found.messages)]

    sets = SetReader(
        table=table,
        make=rendered,
        asked=lambda one: one.token_ids,
        what="prompt",
        seed=limits.seed,
        bound="context less rollout.sampling.max_tokens, or data.max_prompt_tokens",
        longest=limits.max_prompt_tokens,
        problems=_problems,
        progress=progress or RowProgress(),
        evals=evals,
    ).read()
    unknown = unknown_share(unknown_id(tokenizer), ((one.place, one.token_ids) for one in sets.all), table)
    prompts.write(RunPaths(out).prompts, (_row(*named) for named in _with_ids(sets.train)))
    prompts.write(
        RunPaths(out).eval_prompts,
        prompts.of_sets(sets.held_out, lambda some: [_row(*named) for named in _with_ids(some)]),
    )
    return PreparedData(
        prompts=len(sets.train),
        eval_prompts=len(sets.evaluated),
        dropped_overlong=sets.overlong,
        dropped_duplicates=sets.duplicates,
        longest_prompt=max(one.tokens for one in sets.all),
        stop_token_ids=stops,
        unknown_share=unknown,
        begun_twice=renderer.begun_twice,
    )


def _problems(items: Sequence[Rendered]) -> list[str]:
    """Reports repeated ids and absent answers, unless all are absent: a reward may need none."""
    without = [one for one in items if one.prompt.columns.get("answer") is None]
    missing = [] if len(without) == len(items) else without
    return repeated_ids((one.place, one.prompt.given_id) for one in items) + [
        f'{one.place}: column "answer" is missing or empty, though other rows have it' for one in missing
    ]


def _with_ids(rows: Iterable[Rendered]) -> list[tuple[str, Rendered]]:
    """Names each row by its given id, else by a hash of its content; a repeated hash gets a number appended."""
    seen: dict[str, int] = {}
    named: list[tuple[str, Rendered]] = []
    for one in rows:
        name = one.prompt.given_id
        if name is None:
            name = digest([one.token_ids, dict(one.prompt.columns)])
            seen[name] = seen.get(name, 0) + 1
            name += f"-{seen[name]}" if seen[name] > 1 else ""
        named.append((name, one))
    return named


def _row(name: str, one: Rendered) -> dict[str, object]:
    return {
        "sample_id": name,
        "token_ids": one.token_ids,
        "text": one.text,
        "messages": None if one.messages is None else json.dumps(one.messages),
        "columns": json.dumps(dict(one.prompt.columns)),
    }


def from_json(text: str) -> PreparedData:
    """The inverse of `as_json`."""
    values = json.loads(text)
    return PreparedData(**values | {"stop_token_ids": tuple(values["stop_token_ids"])})


def as_json(data: "DataclassInstance") -> str:
    """Serializes the result for the process that requested the preparation."""
    return json.dumps(asdict(data))
