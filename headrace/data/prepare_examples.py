"""Preparation for the stages that train on given examples: rows -> token ids -> held-out split -> parquet files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from headrace.config.data import DataTable
from headrace.data.example_render import ExampleRenderer, RenderedExample, RenderedPair
from headrace.data.examples import dialogue_of, ranked_pair_of
from headrace.data.prepare import LengthLimits
from headrace.data.progress import RowProgress
from headrace.data.render import fitting_tokenizer, stop_token_ids
from headrace.data.rows import DataRow
from headrace.data.sets import SetReader, Sets
from headrace.data.unknown import unknown_id, unknown_share
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
    begun_twice: int = 0
    """Examples from whose prompt a second beginning-of-text token was taken off."""


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
    tokenizer = fitting_tokenizer(model, vocab_size=limits.vocab_size)
    renderer = ExampleRenderer(tokenizer, table, stop_token_ids(model, tokenizer))

    def read(make: Callable[[DataRow], list[T]]) -> Sets[T]:
        return SetReader(
            table=table,
            make=lambda row, _: make(row),
            asked=lambda one: one.prompt_ids,
            what="example",
            seed=limits.seed,
            bound="the model's context, or max_tokens of the stage",
            longest=limits.max_prompt_tokens,
            progress=progress or RowProgress(),
        ).read()

    if stage == "sft":
        dialogues = read(lambda row: renderer.dialogue(dialogue_of(row, table)))
        found = _write_sets(table, dialogues, _example_columns, unknown_id(tokenizer), out)
    else:
        pairs = read(lambda row: [renderer.pair(ranked_pair_of(row, table))])
        found = _write_sets(table, pairs, _pair_columns, unknown_id(tokenizer), out)
    return replace(found, begun_twice=renderer.prompts.begun_twice)


def _write_sets(
    table: DataTable,
    sets: Sets[T],
    columns: Callable[[Sequence[T]], dict[str, object]],
    unknown: int | None,
    out: Path,
) -> PreparedExamples:
    share = unknown_share(unknown, (text for one in sets.all for text in _texts(one)), table)
    _write(RunPaths(out).examples, columns(sets.train))
    if sets.evaluated:
        _write(RunPaths(out).eval_examples, columns(sets.evaluated))
    return PreparedExamples(
        examples=len(sets.train),
        eval_examples=len(sets.evaluated),
        dropped_overlong=sets.overlong,
        dropped_duplicates=sets.duplicates,
        longest=max(one.tokens for one in sets.all),
        trained_tokens=sum(_trained(one) for one in sets.train),
        unknown_share=share,
    )


def _trained(one: RenderedExample | RenderedPair) -> int:
    return sum(one.trained) if isinstance(one, RenderedExample) else len(one.chosen_ids) + len(one.rejected_ids)


def _texts(one: RenderedExample | RenderedPair) -> list[tuple[str, Sequence[int]]]:
    answers = [one.completion_ids] if isinstance(one, RenderedExample) else [one.chosen_ids, one.rejected_ids]
    return [(one.place, ids) for ids in (one.prompt_ids, *answers)]


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
