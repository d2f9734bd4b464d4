"""The whole preparation: rows -> prompts -> token ids -> held-out split -> two parquet files."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.config.data import DataTable
from headrace.data.held_out import digest
from headrace.data.presets import Message, Prompt, prompt_of
from headrace.data.progress import RowProgress
from headrace.data.render import PromptRenderer, load_tokenizer, stop_token_ids
from headrace.data.rows import DataRow
from headrace.data.sets import Reading, read_sets
from headrace.data.unknown import unknown_id, unknown_share
from headrace.wire.rundir import prompts
from headrace.wire.rundir.layout import RunPaths


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
    asked: list[int]
    """Its token ids."""
    messages: list[Message] | None

    @property
    def place(self) -> str:
        """Of the row."""
        return self.prompt.place

    @property
    def tokens(self) -> int:
        """Its length."""
        return len(self.asked)


def prepare(
    table: DataTable, model: Path, limits: LengthLimits, out: Path, progress: RowProgress | None = None
) -> PreparedData:
    """Writes `prompts.parquet` and `eval.parquet` into `out`, or raises DataError or ConfigError and writes neither."""
    tokenizer = load_tokenizer(model, vocab_size=limits.vocab_size)
    stops = tuple(stop_token_ids(model, tokenizer))
    renderer = PromptRenderer(tokenizer, table)

    def rendered(row: DataRow) -> list[Rendered]:
        prompt = prompt_of(row, table)
        found = renderer.ask(prompt.place, prompt.content, prompt.tools)
        return [Rendered(prompt, found.seen.text, found.seen.token_ids.tolist(), found.messages)]

    reading = Reading(
        what="prompt",
        item=rendered,
        problems=lambda items: _duplicate_ids(items) + _missing_answers(items),
        longest=limits.max_prompt_tokens,
        bound="context less rollout.sampling.max_tokens, or data.max_prompt_tokens",
    )
    sets = read_sets(table, reading, seed=limits.seed, progress=progress)
    every = [*sets.train, *sets.held_out]
    unknown = unknown_share(unknown_id(tokenizer), ((one.place, one.asked) for one in every), table)
    prompts.write(RunPaths(out).prompts, (_row(*named) for named in _with_ids(sets.train)))
    prompts.write(RunPaths(out).eval_prompts, (_row(*named) for named in _with_ids(sets.held_out)))
    return PreparedData(
        prompts=len(sets.train),
        eval_prompts=len(sets.held_out),
        dropped_overlong=sets.overlong,
        dropped_duplicates=sets.duplicates,
        longest_prompt=max(one.tokens for one in every),
        stop_token_ids=stops,
        unknown_share=unknown,
        begun_twice=renderer.begun_twice,
    )


def _duplicate_ids(items: Sequence[Rendered]) -> list[str]:
    first: dict[str, str] = {}
    return [
        f'{one.place}: id "{given}" was already given at {first[given]}'
        for one in items
        if (given := one.prompt.given_id) is not None and first.setdefault(given, one.place) != one.place
    ]


def _missing_answers(items: Sequence[Rendered]) -> list[str]:
    """Reports absent answers, unless all are absent: a reward may need none."""
    without = [one for one in items if one.prompt.columns.get("answer") is None]
    if len(without) == len(items):
        return []
    return [f'{one.place}: column "answer" is missing or empty, though other rows have it' for one in without]


def _with_ids(rows: Iterable[Rendered]) -> list[tuple[str, Rendered]]:
    """Names each row by its given id, else by a hash of its content; a repeated hash gets a number appended."""
    seen: dict[str, int] = {}
    named: list[tuple[str, Rendered]] = []
    for one in rows:
        name = one.prompt.given_id
        if name is None:
            name = digest([one.asked, dict(one.prompt.columns)])
            seen[name] = seen.get(name, 0) + 1
            name += f"-{seen[name]}" if seen[name] > 1 else ""
        named.append((name, one))
    return named


def _row(name: str, one: Rendered) -> dict[str, object]:
    return {
        "sample_id": name,
        "token_ids": one.asked,
        "text": one.text,
        "messages": _as_text(one.messages),
        "columns": json.dumps(dict(one.prompt.columns)),
    }


def _as_text(messages: list[Message] | None) -> str | None:
    """The messages as JSON, None if JSON cannot hold them: annotators see them, training does not need them."""
    try:
        return None if messages is None else json.dumps(messages)
    except (TypeError, ValueError):
        return None


def from_json(text: str) -> PreparedData:
    """The inverse of `as_json`."""
    values = json.loads(text)
    return PreparedData(**values | {"stop_token_ids": tuple(values["stop_token_ids"])})


def as_json(data: PreparedData) -> str:
    """Serializes the result for the process that requested the preparation."""
    return json.dumps(asdict(data))
