"""Preparation for the stages that train on given examples: rows -> token ids -> held-out split -> parquet files."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from headrace.config.data import DataTable
from headrace.data.example_render import ExampleRenderer, RenderedExample, RenderedPair
from headrace.data.examples import dialogue_of, ranked_pair_of
from headrace.data.held_out import digest, hold_out
from headrace.data.prepare import LengthLimits
from headrace.data.progress import RowProgress
from headrace.data.render import load_tokenizer, stop_token_ids
from headrace.data.rows import DataRow, parse_rows, raise_all, read_rows
from headrace.data.unknown import unknown_id, unknown_share
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths

T = TypeVar("T", bound=RenderedExample | RenderedPair)


@dataclass(frozen=True, slots=True)
class PreparedExamples:
    """What was prepared, for the user to see."""

    examples: int
    eval_examples: int
    dropped_overlong: int
    dropped_duplicates: int
    """Training examples whose prompt is also held out."""
    longest: int
    """Tokens of the longest example."""
    trained_tokens: int
    """Trained tokens of all training examples; a pair counts those of both answers."""
    unknown_share: float = 0.0
    """Share of unknown tokens among those of all examples."""

    def as_json(self) -> str:
        """Serializes the result for the process that requested the preparation."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "PreparedExamples":
        """The inverse of `as_json`."""
        return cls(**json.loads(text))


def prepare_examples(
    table: DataTable,
    stage: str,
    model: Path,
    limits: LengthLimits,
    out: Path,
    progress: RowProgress | None = None,
) -> PreparedExamples:
    """Writes the parquet files of `stage` into `out`; held-out examples get a file only if there are any.

    `limits.max_prompt_tokens` limits whole examples. Raises DataError or ConfigError and writes neither.
    """
    if table.eval_split and (table.eval_path or Path(table.path).exists()):
        raise ConfigError("[data] eval_split is for a `datasets` id; for a file, hold rows out with eval_size")
    tokenizer = load_tokenizer(model, vocab_size=limits.vocab_size)
    renderer = ExampleRenderer(tokenizer, table, stop_token_ids(model, tokenizer))
    if stage == "sft":
        found = _sets(table, _shown(progress, lambda row: renderer.dialogue(dialogue_of(row, table))), limits)
        return _write_sets(table, found, _example_columns, unknown_id(tokenizer), out)
    pairs = _sets(table, _shown(progress, lambda row: [renderer.pair(ranked_pair_of(row, table))]), limits)
    return _write_sets(table, pairs, _pair_columns, unknown_id(tokenizer), out)


def _shown(progress: RowProgress | None, render: Callable[[DataRow], list[T]]) -> Callable[[DataRow], list[T]]:
    """`render`, which writes first which row it renders."""
    if progress is None:
        return render
    shown = progress
    shown.begin("rendering")

    def render_shown(row: DataRow) -> list[T]:
        shown.at(row.place)
        return render(row)

    return render_shown


def _write_sets(
    table: DataTable,
    found: tuple[list[T], list[T], int, int],
    columns: Callable[[Sequence[T]], dict[str, object]],
    unknown: int | None,
    out: Path,
) -> PreparedExamples:
    train, held_out, dropped, duplicates = found
    if not train:
        raise DataError(f"{table.path}: no example is left to train on")
    share = unknown_share(unknown, (text for one in (*train, *held_out) for text in _texts(one)), table)
    _write(RunPaths(out).examples, columns(train))
    if held_out:
        _write(RunPaths(out).eval_examples, columns(held_out))
    return PreparedExamples(
        examples=len(train),
        eval_examples=len(held_out),
        dropped_overlong=dropped,
        dropped_duplicates=duplicates,
        longest=max(one.tokens for one in (*train, *held_out)),
        trained_tokens=sum(_trained(one) for one in train),
        unknown_share=share,
    )


def _sets(
    table: DataTable, render: Callable[[DataRow], list[T]], limits: LengthLimits
) -> tuple[list[T], list[T], int, int]:
    """Returns training and held-out examples, the number overlong, and the number dropped because held out."""
    train, overlong = _read(table, table.path, table.split, render, limits, first=table.limit)
    if table.eval_path or table.eval_split:
        path, split = table.eval_path or table.path, table.eval_split or table.split
        held_out, more = _read(table, path, split, render, limits, first=table.eval_size)
        return train, held_out, overlong + more, 0
    if not table.eval_size:
        return train, [], overlong, 0
    prompts = [digest(one.prompt_ids) for one in train]
    held_out, left, duplicates = hold_out(train, prompts, size=table.eval_size, seed=limits.seed)
    return left, held_out, overlong, duplicates


def _trained(one: RenderedExample | RenderedPair) -> int:
    return sum(one.trained) if isinstance(one, RenderedExample) else len(one.chosen_ids) + len(one.rejected_ids)


def _texts(one: RenderedExample | RenderedPair) -> list[tuple[str, Sequence[int]]]:
    answers = [one.completion_ids] if isinstance(one, RenderedExample) else [one.chosen_ids, one.rejected_ids]
    return [(one.place, ids) for ids in (one.prompt_ids, *answers)]


def _read(
    table: DataTable, path: str, split: str, render: Callable[[DataRow], list[T]], limits: LengthLimits, *, first: int
) -> tuple[list[T], int]:
    """Returns the examples that fit and the number that do not. Raises DataError if they may not be dropped."""
    parsed, errors = parse_rows(read_rows(path, subset=table.subset, split=split), render, limit=first)
    found = [one for made in parsed for one in made]
    limit = limits.max_prompt_tokens
    overlong = [one for one in found if one.tokens > limit]
    if table.overlong == "error":
        errors += [
            f"{one.place}: the example has {one.tokens} tokens, but at most {limit} are allowed (the model's context, "
            'or max_tokens of the stage); data.overlong = "drop" skips it'
            for one in overlong
        ]
    raise_all(errors)
    if not found:
        raise DataError(f"{path}: there are no rows")
    return [one for one in found if one.tokens <= limit], len(overlong)


def _example_columns(examples: Sequence[RenderedExample]) -> dict[str, object]:
    import pyarrow as pa

    return {
        "prompt_ids": pa.array([one.prompt_ids for one in examples], pa.list_(pa.int32())),
        "completion_ids": pa.array([one.completion_ids for one in examples], pa.list_(pa.int32())),
        "trained": pa.array([one.trained for one in examples], pa.list_(pa.bool_())),
    }


def _pair_columns(pairs: Sequence[RenderedPair]) -> dict[str, object]:
    import pyarrow as pa

    names = ("prompt_ids", "chosen_ids", "rejected_ids")
    ids = {name: pa.array([getattr(pair, name) for pair in pairs], pa.list_(pa.int32())) for name in names}
    return ids | {"margin": pa.array([pair.margin for pair in pairs], pa.float32())}


def _write(path: Path, columns: dict[str, object]) -> None:
    """Writes the file; durable, because a resumed run trains on the same rows even if the data has changed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with atomic.replaced_file(path, durable=True) as aside:
        pq.write_table(pa.table(columns), aside, write_page_checksum=True)
