"""`RUN/rollouts/step-000001.parquet`: every rollout of a step, one row each. Its columns, writer and reader.

Files of earlier versions lack some of the columns; readers ask for those that they need and take what is there.
pyarrow is imported where it is needed: this module is read by processes without it.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headrace.wire.contracts.messages import Header, Rollout, ScoredGroup, TokenMask
from headrace.wire.contracts.scores import Score
from headrace.wire.rundir import atomic, parquet
from headrace.wire.rundir.episode_column import episode_text
from headrace.wire.rundir.jsonl import Record, parse
from headrace.wire.rundir.layout import rollout_file
from headrace.wire.telemetry.logs import trace_id
from headrace.wire.telemetry.reward_components import components_of, token_total, total

if TYPE_CHECKING:
    import pyarrow as pa

EPISODE = "episode"
SET = "set"
NO_ANSWER = -1
"""`answer_start` of a completion with a thought that never closed."""
COLUMNS: Mapping[str, str] = {
    "step": "int64",
    "group_index": "int64",
    "group_id": "string",
    "rollout_index": "int32",
    "sample_id": "string",
    "prompt": "string",
    "columns": "string",  # JSON: the columns of the prompt's row, bounded (`bounded`); older files lack it
    "completion": "string",
    "answer_start": "int32",  # characters of the completion that are thoughts; -1: no answer; older files lack it
    "reward": "double",  # that is trained on, the sum of the weighted components; null: no scorer could score it
    "components": "string",  # JSON: component -> value; those that abstained are absent
    "weights": "string",  # JSON: component -> its weight in the reward; older files lack it
    "token_score": "double",  # sum of its token scores
    "reason": "string",  # the scorers' words
    "scorers": "string",  # JSON: scorer -> its version
    "advantage": "double",  # null: not trained
    "min_version": "int64",
    "max_version": "int64",
    "finish_reason": "string",
    "tokens": "int32",
    "trained_tokens": "int32",
    "replica_id": "string",
    "spans": "string",  # JSON: list of [start, end, "incarnation.version", digest of the weights]
    "trace_id": "string",
    "token_ids": "list<int32>",
    "logprobs": "list<float>",  # the engine's; null for tokens that were not sampled
    "token_advantages": "list<float>",  # null unless they differ within the rollout
    "kept_ids": "list<int32>",  # how many ids each token was drawn from; null: the vocabulary; older files lack it
    SET: "string",  # the evaluation set; only in RUN/evaluations, whose steps are the evaluated versions
    EPISODE: "string",  # JSON, see episode_column.py; the column is there only where episodes are
}
"""Column -> Arrow type, in the order of the file."""
ANSWER = "answer"
"""Column of a row with its reference answer."""
_MOST_ANSWER, _MOST_COLUMN, _MOST_COLUMNS = 4096, 1000, 8192
"""Characters of the answer, of another column, and of all together."""
CUT = "..."
_NAME = re.compile(r"step-(\d{6,12})\.parquet")
_ROW_GROUP = 256
"""Rows that a reader of one group reads together."""


def columns(*names: str) -> tuple[str, ...]:
    """The names, each of which must be a column. Raises ValueError otherwise."""
    return parquet.checked(names, COLUMNS, "rollouts")


def schema(*, episodes: bool = False, sets: bool = False) -> "pa.Schema":
    """The schema of a new file, with or without episodes and evaluation sets."""
    without = {EPISODE: not episodes, SET: not sets}
    return parquet.schema({name: kind for name, kind in COLUMNS.items() if not without.get(name)})


def step_of(name: str) -> int | None:
    """The step of a file of this name; None for any other file."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def files(folder: Path) -> dict[int, os.stat_result]:
    """Step -> status of its file; empty if there is no folder. A file that is removed meanwhile is left out."""
    found = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            step = step_of(entry.name)
            if step is not None:
                with contextlib.suppress(FileNotFoundError):
                    found[step] = entry.stat()
    return found


def of_group(step: int, header: Header, scored: ScoredGroup) -> dict[str, object]:
    """The columns that all rollouts of a group share."""
    return {
        "step": step,
        "group_index": header.group_index,
        "group_id": header.group_id,
        "sample_id": scored.group.prompt.sample_id,
        "prompt": scored.group.prompt.text,
        "columns": bounded(scored.group.prompt.columns),
        "scorers": json.dumps(scored.versions, sort_keys=True),
        "replica_id": scored.group.replica_id,
        "trace_id": trace_id(header.traceparent),
    }


def row_of(rollout: Rollout, score: Score, shaping: Mapping[str, float] | None = None) -> dict[str, object]:
    """The columns that follow from one rollout, its score and its shaping, whether it is trained yet or not."""
    components = components_of(score, shaping)
    values = {name: one.value for name, one in components.items() if one.value is not None}
    versions = [span.version.version for span in rollout.spans]
    spans = [[span.start, span.end, str(span.version), span.weights_digest] for span in rollout.spans]
    return {
        "completion": rollout.text,
        "answer_start": NO_ANSWER if score.answer_start is None else score.answer_start,
        "reward": None if score.value is None else total(components),
        "components": json.dumps(values, sort_keys=True),
        "weights": json.dumps({name: one.weight for name, one in components.items()}, sort_keys=True),
        "token_score": None if score.token_scores is None else token_total(score),
        "reason": score.reason,
        "min_version": min(versions, default=None),
        "max_version": max(versions, default=None),
        "finish_reason": str(rollout.finish_reason),
        "tokens": len(rollout.token_ids),
        "spans": json.dumps(spans),
        "token_ids": rollout.token_ids,
        "logprobs": where(rollout.trained_mask, rollout.logprobs[rollout.trained_mask]),
        EPISODE: None if rollout.episode is None else episode_text(rollout.episode),
    }


def bounded(columns: Mapping[str, object]) -> str:
    """A row's columns as JSON, the answer first; cut texts end in `...`, the key `...` counts columns left out."""
    found: dict[str, object] = {}
    left = _MOST_COLUMNS
    for name in sorted(columns, key=lambda name: name != ANSWER):
        value = columns[name]
        text = value if isinstance(value, str) else json.dumps(value)
        most = min(left - len(name), _MOST_ANSWER if name == ANSWER else _MOST_COLUMN)
        if most <= 0:
            return json.dumps(found | {CUT: len(columns) - len(found)})
        found[name] = value if len(text) <= most else text[:most] + CUT
        left -= len(name) + min(len(text), most)
    return json.dumps(found)


def columns_of(text: str | None) -> Record:
    """The columns as `bounded` wrote them; empty for a file without them, or with something else there."""
    return parse((text or "").encode()) or {}


def answer_text(columns: Mapping[str, object]) -> str:
    """The reference answer as text; empty if the row has none."""
    found = columns.get(ANSWER)
    if found is None:
        return ""
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def where(mask: TokenMask, values: NDArray[np.float32]) -> NDArray[np.float32] | list[float | None]:
    """`values` of the tokens in the mask; null for the others."""
    if mask.all():
        return values
    each = iter(values.tolist())
    return [next(each) if is_in else None for is_in in mask]


def write(folder: Path, step: int, rows: Iterable[Mapping[str, object]]) -> Path:
    """Writes the file of a step. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    given = list(rows)
    has_episodes, has_sets = (any(row.get(name) is not None for row in given) for name in (EPISODE, SET))
    table = pa.Table.from_pylist(given, schema=schema(episodes=has_episodes, sets=has_sets))
    folder.mkdir(parents=True, exist_ok=True)
    path = rollout_file(folder, step)
    # Numbers of tokens are too many for a dictionary, which triples the time and half again the size.
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    with atomic.replaced_file(path, durable=True) as aside:
        pq.write_table(
            table,
            aside,
            row_group_size=_ROW_GROUP,
            compression="zstd",
            use_dictionary=texts,
            write_page_checksum=True,
        )
    return path


def read(path: Path, names: Sequence[str], rows: tuple[int, int] | None = None) -> "pa.Table":
    """Reads those of the columns that exist; with `rows` only [first, last). Raises DataError."""
    return parquet.read(path, columns(*names), rows)


def read_group(path: Path, group_id: str) -> "pa.Table":
    """All columns of one group's rows. Raises DataError."""
    import pyarrow.compute as pc

    table = read(path, tuple(COLUMNS))
    if "group_id" not in table.column_names:
        return table.slice(0, 0)
    return table.filter(pc.equal(table.column("group_id"), group_id))
