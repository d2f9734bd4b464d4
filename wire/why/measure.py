"""Compares a step of a run directory with the steps before it: reads their rollouts and reduces them to numbers."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.wire.api.why import ExampleRollout, MovedRow, StepDifferences
from headrace.wire.contracts.reasons import FinishReason
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rundir import rollouts
from headrace.wire.rundir.jsonl import number_of
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.rundir.metrics import STEP, TIME
from headrace.wire.telemetry.metric_table import LENGTHS, MEMORY, REWARD, SPEED, Metric, component_means, metric_of
from headrace.wire.telemetry.metric_table import TIME as CLOCKS
from headrace.wire.telemetry.reward_components import component_key
from headrace.wire.why.compare import FEWEST, MOST, SHARE, Quantity, Reading, ranked

if TYPE_CHECKING:
    import pyarrow as pa

HISTORY, _AFTER = 64, 4
"""Steps before and after whose lines are compared; rollouts are those of `MOST` before."""
_MOST_LABELS, _LONGEST_LABEL = 20, 48
_WITH_EXAMPLES, _EXAMPLES, _SHORT = 6, 2, 200
_ENDS = ("finish_reason", "scorers")
"""Columns that rollouts are counted by, and not divided."""
_COLUMNS = rollouts.columns(
    *("group_id", "group_index", "rollout_index", "reward", "advantage", "components", "weights", "columns", "prompt"),
    *("completion", "answer_start", "tokens", "min_version", "replica_id", rollouts.EPISODE, *_ENDS),
)


@dataclass(frozen=True, slots=True)
class _Step:
    """The trained rollouts of a step. Axis: rollout."""

    shown: list[dict[str, Any]]
    """Fields of an `ExampleRollout`: whole texts of so many steps would be too much to hold."""
    groups: NDArray[np.int64]
    """Number of each one's group, from 0."""
    values: Mapping[str, NDArray[np.float64]]
    """Measure -> values; NaN where a rollout has none."""
    labels: Mapping[str, NDArray[np.str_]]
    """Column -> values as text; empty where a rollout has none."""

    def of(self, quantity: Quantity) -> NDArray[np.float64]:
        """The quantity's values; NaN where a rollout has none."""
        none = np.full(len(self.shown), np.nan)
        values = self.values.get(quantity.measure, none)
        if not quantity.column:
            return values
        if quantity.column not in self.labels:
            return none
        is_in = self.labels[quantity.column] == quantity.label
        return is_in.astype(np.float64) if quantity.measure == SHARE else np.where(is_in, values, np.nan)

    def reading(self, quantity: Quantity) -> Reading | None:
        """The mean over the rollouts, with those of a group as one sample; None without any."""
        values = self.of(quantity)
        known = ~np.isnan(values)
        counts = np.bincount(self.groups[known])
        if not known.any():
            return None
        means = np.bincount(self.groups[known], values[known])[counts > 0] / counts[counts > 0]
        return Reading(float(values[known].mean()), float(means.var(ddof=1)) if len(means) > 1 else 0.0, len(means))


def step_differences(run_dir: Path, lines: Mapping[int, Mapping[str, object]], step: int) -> StepDifferences:
    """What moved most in a step. `lines`: step -> its numbers, at least of the steps around it.

    Raises ConfigError for a step that the run has not done, or that has too few steps before it.
    """
    order = sorted(lines)
    place = order.index(step) if step in lines else -1
    if place < 0:
        done = f"its steps are {order[0]} to {order[-1]}" if order else "it has done none"
        raise ConfigError(f"the run has no step {step}: {done}")
    if place < FEWEST:
        raise ConfigError(f"step {step} has {place} steps before it: a comparison needs {FEWEST}")
    near = order[max(0, place - MOST) : place + 1 + _AFTER]
    notes: list[str] = []
    steps = dict(_read(run_dir, near, notes))
    quantities = list(_quantities(steps))
    notes += _components_that_change(lines, [at for at in near if at <= step])
    shown = [at for at, own in steps.items() if own.shown]
    told = step in shown and sum(at < step for at in shown) >= FEWEST
    readings: dict[int, dict[Quantity, Reading]] = {
        at: dict(_of_line(lines[at], has_rollouts=told)) for at in order[max(0, place - HISTORY) : place + 1 + _AFTER]
    }
    for at, own in steps.items():
        readings[at] |= {quantity: found for quantity in quantities if (found := own.reading(quantity))}
    rows = ranked(readings, step)
    return StepDifferences(
        step=step,
        steps_before=tuple(at for at in near if at < step),
        rollouts=len(steps[step].shown) if step in steps else 0,
        rollouts_before=sum(len(own.shown) for at, own in steps.items() if at < step),
        rows=(*(_with_examples(row, steps, step) for row in rows[:_WITH_EXAMPLES]), *rows[_WITH_EXAMPLES:]),
        notes=tuple(notes),
    )


def _read(run_dir: Path, steps: Iterable[int], notes: list[str]) -> Iterator[tuple[int, _Step]]:
    import pyarrow as pa

    missing = []
    for step in steps:
        path = RunPaths(run_dir).rollout_file(step)
        if not path.is_file():
            missing.append(str(step))
            continue
        try:
            yield step, _step(rollouts.read(path, _COLUMNS), step)
        except (DataError, pa.ArrowException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            notes.append(f"{path.name} was left out: {error!r}")
    if missing:
        notes.append(f"no rollouts are kept of {len(missing)} of these steps: {', '.join(missing)}")


def _step(table: "pa.Table", step: int) -> _Step:
    """Raises pa.ArrowException, ValueError, TypeError, KeyError or AttributeError for columns of other kinds."""
    # A greedy baseline has a reward and no advantage.
    rows = [row for row in table.to_pylist() if row["reward"] is None or row["advantage"] is not None]
    names, groups = np.unique([row["group_id"] for row in rows], return_inverse=True)
    measured = [dict(_measures(row, step)) for row in rows]
    for number in range(len(names)):
        members = np.flatnonzero(groups == number)
        rewards, texts = ({rows[at].get(name) for at in members} for name in ("reward", "completion"))
        for at in members:
            measured[at]["equal_rewards_share"] = float(len(rewards) == 1)
            measured[at]["distinct_share"] = len(texts) / len(members)
    data = [rollouts.columns_of(row.get("columns")) for row in rows]
    own = {name for row in data for name in row} - {rollouts.ANSWER, rollouts.CUT}
    held = {name: [str(row.get(name, "")) for row in data] for name in own}
    labels = {name: [one if len(one) <= _LONGEST_LABEL else "" for one in column] for name, column in held.items()}
    labels |= {name: [str(row.get(name) or "") for row in rows] for name in ("replica_id", *_ENDS)}
    measures = {name for one in measured for name in one}
    return _Step(
        shown=list(map(_shown, rows)),
        groups=groups,
        values={name: np.array([one.get(name, np.nan) for one in measured], np.float64) for name in measures},
        labels={name: np.array(values, np.str_) for name, values in labels.items()},
    )


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    prompt, answer = row.get("prompt") or "", (row.get("completion") or "")[max(0, row.get("answer_start") or 0) :]
    name, text = f"{row['group_id']}/{row['rollout_index']}", f"{prompt[:_SHORT]} => {answer[:_SHORT]}"
    return {"id": name, "group_index": row["group_index"], "reward": row["reward"], "text": text}


def _measures(row: Mapping[str, Any], step: int) -> Iterator[tuple[str, float | None]]:
    """(measure, value) of one rollout."""
    components, weights = (json.loads(row.get(name) or "{}") for name in ("components", "weights"))
    if row["reward"] is not None:
        yield "reward_mean", row["reward"]
    yield "abstained_share", float(row["reward"] is None)
    for name in weights.keys() | components.keys():
        key = f"rewards/{component_key(name)}"
        yield f"{key}/abstained", float(name not in components)
        yield f"{key}/mean", components.get(name)
        yield f"{key}/weight", weights.get(name)
    yield "completion_length_mean", row["tokens"]
    yield "truncated_share", float(FinishReason(row["finish_reason"]).is_limit)
    yield "prompt_characters_mean", len(row.get("prompt") or "")
    yield "reward_no_answer_share", float(row.get("answer_start") == rollouts.NO_ANSWER)
    if row.get("min_version") is not None:
        yield "staleness_mean", step - 1 - row["min_version"]
    if row.get(rollouts.EPISODE):
        episode = json.loads(row[rollouts.EPISODE])
        outcomes = [one["outcome"] for one in episode["messages"] if one.get("outcome")]
        yield "episode_turns_mean", len(episode["turn_ends"])
        yield "tool_calls_mean", len(outcomes)
        yield "tool_errors_mean", sum(outcome != "returned" for outcome in outcomes)
        for name, value in ((episode["reward"] or {}).get("metrics") or {}).items():
            yield f"episode/{component_key(name)}", value


def _quantities(steps: Mapping[int, _Step]) -> Iterator[Quantity]:
    """Every measure, of all rollouts and of the parts into which a column with few values divides them."""
    measures = sorted({name for own in steps.values() for name in own.values})
    yield from map(Quantity, measures)
    for column in sorted({name for own in steps.values() for name in own.labels}):
        found = Counter(str(one) for own in steps.values() for one in {*own.labels.get(column, ())} - {""})
        # Each step of a column of ids has others; of sources some stay, also where a fault brings others.
        stay = sum(count > len(steps) / 2 for count in found.values())
        if len(found) >= 2 and (len(found) <= _MOST_LABELS or 2 <= stay <= _MOST_LABELS):
            for label, _ in found.most_common(_MOST_LABELS):
                yield Quantity(SHARE, column, label)
                yield from (Quantity(name, column, label) for name in measures if column not in _ENDS)


def _components_that_change(lines: Mapping[int, Mapping[str, object]], steps: Sequence[int]) -> Iterator[str]:
    """Notes on reward components that the last of these steps has and most before it have not, or the other way."""
    *before, now = (component_means(lines[at]).keys() for at in steps)
    for name in sorted({one for own in (*before, now) for one in own}):
        times = sum(name in own for own in before)
        if name in now and times < FEWEST:
            first = next(at for at in steps if name in component_means(lines[at]))
            yield f"the reward component {name} is new: no step compared has it before step {first}"
        elif name not in now and times >= FEWEST:
            yield f"the reward component {name} is gone: {times} steps before have it"


def _of_line(line: Mapping[str, object], *, has_rollouts: bool) -> Iterator[tuple[Quantity, Reading]]:
    """The numbers of a step's line without its clocks; with rollouts, also without those that they tell in parts."""
    for name, one in line.items():
        value, found = number_of(one), metric_of(name) or Metric("", "", "")
        is_told = has_rollouts and (found.group in (REWARD, LENGTHS) or found.unit == "tokens")
        is_clock = name in (STEP, TIME) or found.group in (CLOCKS, SPEED, MEMORY)
        if value is not None and not is_clock and not is_told:
            yield Quantity(name), Reading(value)


def _with_examples(row: MovedRow, steps: Mapping[int, _Step], step: int) -> MovedRow:
    quantity = Quantity(row.measure, row.column, row.label)
    # Now: the furthest on the side to which it moved.
    beyond = row.now + 100 * (row.now - row.before)
    was, now = _examples(quantity, steps, row.since - 1, row.before), _examples(quantity, steps, step, beyond)
    return row.model_copy(update={"examples_before": was, "examples_now": now})


def _examples(quantity: Quantity, steps: Mapping[int, _Step], last: int, like: float) -> tuple[ExampleRollout, ...]:
    """Rollouts of different groups, with values nearest to `like`, of the newest step up to `last` that has any."""
    for step in sorted((at for at in steps if at <= last), reverse=True):
        own = steps[step]
        values = own.of(quantity)
        known = np.flatnonzero(values == 1 if quantity.measure == SHARE else ~np.isnan(values))
        if len(known):
            order = known[np.argsort(np.abs(values[known] - like), kind="stable")]
            _, firsts = np.unique(own.groups[order], return_index=True)
            chosen = order[np.sort(firsts)[:_EXAMPLES]]
            return tuple(ExampleRollout(step=step, value=values[at], **own.shown[at]) for at in chosen)
    return ()
