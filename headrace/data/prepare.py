"""The whole preparation: rows -> prompts -> token ids -> held-out split -> two parquet files."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.config.data import DataTable
from headrace.data.held_out import digest, hold_out
from headrace.data.presets import Message, Prompt, prompt_of
from headrace.data.progress import RowProgress
from headrace.data.render import Rendered, Renderer, load_tokenizer, stop_token_ids
from headrace.data.rows import parse_rows, raise_all, read_rows
from headrace.data.unknown import unknown_id, unknown_share
from headrace.wire.errors import ConfigError, DataError
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


@dataclass(frozen=True, slots=True)
class LengthLimits:
    """Limits set by the model and the run."""

    max_prompt_tokens: int
    vocab_size: int
    seed: int


def prepare(
    table: DataTable, model: Path, limits: LengthLimits, out: Path, progress: RowProgress | None = None
) -> PreparedData:
    """Writes `prompts.parquet` and `eval.parquet` into `out`, or raises DataError or ConfigError and writes neither."""
    if table.eval_split and (table.eval_path or Path(table.path).exists()):
        raise ConfigError("[data] eval_split is for a `datasets` id; for a file, hold rows out with eval_size")
    progress = progress or RowProgress()
    progress.begin(f"reading {table.path}")
    rows = _prompts(table, table.path, table.split, limit=table.limit)
    tokenizer = load_tokenizer(model, vocab_size=limits.vocab_size)
    renderer = Renderer(tokenizer, table, progress)
    train, dropped = _within(renderer.render(rows), table, limits)
    held_out: list[Rendered] = []
    duplicates = 0
    if table.eval_path or table.eval_split:
        other = _prompts(table, table.eval_path or table.path, table.eval_split or table.split, limit=table.eval_size)
        held_out, more = _within(renderer.render(other), table, limits)
        dropped += more
    elif table.eval_size:
        held_out, train, duplicates = hold_out(
            train, [digest(one.token_ids) for one in train], size=table.eval_size, seed=limits.seed
        )
    if not train:
        raise DataError(f"{table.path}: no prompt is left to train on")
    places = ((one.prompt.place, one.token_ids) for one in (*train, *held_out))
    unknown = unknown_share(unknown_id(tokenizer), places, table)
    prompts.write(RunPaths(out).prompts, (_row(*named) for named in _with_ids(train)))
    prompts.write(RunPaths(out).eval_prompts, (_row(*named) for named in _with_ids(held_out)))
    longest = max(len(one.token_ids) for one in (*train, *held_out))
    stops = tuple(stop_token_ids(model, tokenizer))
    return PreparedData(len(train), len(held_out), dropped, duplicates, longest, stops, unknown)


def _prompts(table: DataTable, path: str, split: str, *, limit: int) -> list[Prompt]:
    rows = read_rows(path, subset=table.subset, split=split)
    prompts, errors = parse_rows(rows, lambda row: prompt_of(row, table), limit=limit)
    errors += _duplicate_ids(prompts) + _missing_answers(prompts)
    raise_all(errors)
    if not prompts:
        raise DataError(f"{path}: there are no rows")
    return prompts


def _duplicate_ids(prompts: Sequence[Prompt]) -> list[str]:
    seen: dict[str, str] = {}
    errors: list[str] = []
    for prompt in prompts:
        if prompt.given_id is None:
            continue
        first = seen.setdefault(prompt.given_id, prompt.place)
        if first != prompt.place:
            errors.append(f'{prompt.place}: id "{prompt.given_id}" was already given at {first}')
    return errors


def _missing_answers(prompts: Sequence[Prompt]) -> list[str]:
    """Reports absent answers, unless all are absent: a reward may need none."""
    without = [prompt for prompt in prompts if prompt.columns.get("answer") is None]
    if len(without) == len(prompts):
        return []
    return [f'{prompt.place}: column "answer" is missing or empty, though other rows have it' for prompt in without]


def _within(rendered: list[Rendered], table: DataTable, limits: LengthLimits) -> tuple[list[Rendered], int]:
    """Drops prompts over the limit and counts them. Raises DataError if they may not be dropped."""
    limit = limits.max_prompt_tokens
    fitting = [one for one in rendered if len(one.token_ids) <= limit]
    if table.overlong == "error":
        raise_all(
            [
                f"{one.prompt.place}: the prompt has {len(one.token_ids)} tokens, but at most {limit} fit "
                '(context less rollout.sampling.max_tokens, or data.max_prompt_tokens); data.overlong = "drop" skips it'
                for one in rendered
                if len(one.token_ids) > limit
            ]
        )
    return fitting, len(rendered) - len(fitting)


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
