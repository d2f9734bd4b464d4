"""Renders a story for the terminal."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.inspect.conversation import conversation
from headrace.inspect.explain.story import Moment, Story
from headrace.inspect.tables import plain_table
from headrace.wire.api.episodes import EpisodeView
from headrace.wire.rundir import rollouts

_LONGEST = 160


def show(story: Story) -> RenderableType:
    """Shows outcome, timeline and rollouts; with all details if the story is of a single rollout."""
    head = [Text(f"{story.id}: {story.where}", style="bold")]
    if story.prompt:
        head.append(Text(f"prompt: {_short(story.prompt) if story.rollout is None else story.prompt}"))
    columns = story.rollouts[0].get("columns", {}) if story.rollouts else {}
    if story.rollout is None:
        columns = {name: value for name, value in columns.items() if name == rollouts.ANSWER}
    for name, value in columns.items():
        head.append(Text(f"{name}: {_short(str(value)) if story.rollout is None else value}"))
    facts = [("sample", story.sample_id), ("trace", story.trace)]
    facts += [("issued", f"{story.attempts} times")] if story.attempts > 1 else []
    facts += [("delivered again", f"{story.redeliveries} times")] if story.redeliveries else []
    head.append(Text("  ".join(f"{name} {value}" for name, value in facts if value), style="dim"))
    parts: list[RenderableType] = [*head, Text(), _life(story.life)]
    if story.rollouts:
        parts += [Text(), _rollouts(story)]
    if story.rollout is not None:
        parts += _details(story)
    return Group(*parts, *(Text(note, style="yellow") for note in story.notes))


def _life(moments: list[Moment]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True)
    table.add_column()
    begin = next((one.t for one in moments if one.what.startswith("issued")), moments[0].t if moments else 0.0)
    for one in moments:
        clock = time.strftime("%H:%M:%S", time.localtime(one.t)) + f"{one.t % 1:.3f}"[1:]
        table.add_row(clock, f"{one.t - begin:+.3f} s", Text(one.who), Text(one.what))
    return table


def _rollouts(story: Story) -> Table:
    titles = ("rollout", "reward", "advantage", "tokens", "end", "versions", "stale", "replica", "completion")
    cells = []
    for row in story.rollouts:
        oldest = row["min_version"]
        stale = "" if story.step is None or oldest is None else str(story.step - 1 - int(oldest))
        numbers = (str(row["rollout_index"]), _number(row["reward"]), _number(row["advantage"]), str(row["tokens"]))
        versions = ", ".join(dict.fromkeys(str(span[2]) for span in row["spans"]))
        words = (str(row["finish_reason"]), versions, stale, str(row["replica_id"]), _short(_answer(row)))
        cells.append((*numbers, *words))
    return plain_table(titles, cells, folds=["completion"], right=("rollout", "reward", "advantage", "tokens", "stale"))


def _details(story: Story) -> Iterator[RenderableType]:
    for row in story.rollouts:
        yield Text()
        for name, value in sorted(row["components"].items()):
            yield Text(f"score {name}: {value:g}")
        if row.get("reason"):
            yield Text(f"reason: {row['reason']}")
        for begin, end, version, digest in row["spans"]:
            yield Text(f"tokens {begin} to {end}: version {version} (weights {str(digest)[:17] or 'without digest'})")
        if counts := [count for count in row.get("kept_ids") or () if count]:
            yield Text(f"drawn from {sum(counts) / len(counts):.1f} ids a token, cut off from the vocabulary")
        if row.get("episode"):
            episode = EpisodeView.model_validate(row["episode"])
            yield from conversation(episode, row["logprobs"] or (), str(row["finish_reason"]))
        else:
            start = row.get("answer_start")
            if start:
                thoughts = row["completion"] if start == rollouts.NO_ANSWER else row["completion"][:start]
                yield Text(f"thoughts: {thoughts}", style="dim")
            yield Text(f"completion: {_answer(row)}")


def _answer(row: Mapping[str, Any]) -> str:
    """What a rollout says after its reasoning."""
    start = row.get("answer_start") or 0
    if start == rollouts.NO_ANSWER:
        return "(no answer: a thought never closed)"
    return str(row["completion"])[start:]


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "-"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
