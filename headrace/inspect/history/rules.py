"""Invariants of a history. Pure: each rule takes a history and yields the violations."""

from collections import Counter
from collections.abc import Iterator, Set
from typing import cast

from headrace.inspect.history.record import RunHistory, batches_by_step
from headrace.inspect.history.verdict import Bound

RUN_ENDED = "run_ended"


def steps_are_whole(history: RunHistory) -> Iterator[str]:
    """Batches are those of steps 1..N, one each, and all but the last are known to be done."""
    counts = Counter(batch.record.step for batch in history.batches)
    for step, count in sorted(counts.items()):
        if count > 1:
            yield f"step {step} has {count} batches in the journal"
    for step, batch in batches_by_step(history):
        if not batch.record.group_ids:
            yield f"the batch of step {step} is empty"
    highest = max([*counts, *history.done], default=0)
    for steps in missing(set(counts), 1, highest):
        yield f"step {steps} has no batch in the journal"
    for steps in missing(set(history.done), 1, highest - 1):
        yield f"step {steps} was never done, but a later step was begun"
    for step in sorted(step for step in (*counts, *history.done) if step < 1):
        yield f"there is no step {step}"


def events_agree(history: RunHistory) -> Iterator[str]:
    """Batches in the trainers' events match the journal, unless a later incarnation put the batch aside."""
    by_step = dict(batches_by_step(history))
    newest = max(history.incarnations, default=0)
    seen: dict[tuple[str, int], str] = {}
    for event in history.batch_events:
        step, digest, source = cast(int, event["step"]), str(event["digest"]), str(event["source"])
        if seen.setdefault((source, step), digest) != digest:
            yield f"{source} records two batches of step {step}"
            continue
        batch = by_step.get(step)
        life = source.rpartition("-")[2]
        incarnation = int(life) if life.isdecimal() else newest
        if batch is None:
            if incarnation >= newest:
                yield f"{source} records a batch of step {step}, which the journal does not have"
        elif batch.record.digest != digest and incarnation == batch.incarnation:
            yield f"the batch of step {step} in the journal is not the one that {source} records"


def groups_have_one_end(history: RunHistory) -> Iterator[str]:
    """A group is in one step or dropped with a reason, never both, and was issued before."""
    first: dict[str, int] = {}
    for _, batch in batches_by_step(history):
        record = batch.record
        for group, count in Counter(record.group_ids).items():
            if count > 1:
                yield f"group {group} is {count} times in the batch of step {record.step}"
            if group in first:
                yield f"group {group} was trained in step {first[group]} and again in step {record.step}"
            first.setdefault(group, record.step)
        if list(record.group_indices) != sorted(record.group_indices):
            yield f"the batch of step {record.step} is not in order of its groups"
    issued = set(history.issued.values())
    for group in sorted(first.keys() - issued):
        yield f"group {group} was trained but never issued"
    reasons: dict[str, str] = {}
    for drop in history.drops:
        if drop.group_id in first:
            yield f"group {drop.group_id} was trained in step {first[drop.group_id]} and dropped ({drop.reason})"
        if reasons.setdefault(drop.group_id, drop.reason) != drop.reason:
            yield f"group {drop.group_id} was dropped twice ({reasons[drop.group_id]}, {drop.reason})"
        if not drop.reason:
            yield f"group {drop.group_id} was dropped without a reason"
        if drop.group_id not in issued:
            yield f"group {drop.group_id} was dropped but never issued"


def nothing_is_forgotten(history: RunHistory) -> Iterator[str]:
    """Every issued group has an end and no index was skipped. Checked only once the run has ended."""
    if not history.has_ended:
        return
    ended = {*trained_groups(history), *(drop.group_id for drop in history.drops), *history.ended_open}
    for _, group in sorted(history.issued.items()):
        if group not in ended:
            yield f"group {group} was issued and then forgotten: it is neither trained nor dropped nor open at the end"
    known = {int(group.rpartition("/g")[2]) for group in ended if group.rpartition("/g")[2].isdecimal()}
    for indices in missing({*history.issued, *known}, 0, max(history.issued, default=-1)):
        yield f"group {indices} was skipped: it was never issued, though later ones were"


def order_is_strict(history: RunHistory, bound: Bound) -> Iterator[str]:
    """Where batches are ordered, each takes the lowest groups without an end: none is skipped or out of turn."""
    if not bound.is_ordered:
        return
    dropped = {drop.group_index for drop in history.drops}
    expected = 0
    for step, batch in batches_by_step(history):
        for index in sorted(batch.record.group_indices):
            while expected < index and expected in dropped:
                expected += 1
            if index > expected:
                yield f"step {step} trained group {index}, though group {expected} had come before it and has no end"
            elif index < expected:
                yield f"step {step} trained group {index} out of its turn"
            expected = max(expected, index + 1)


def credit_is_kept(history: RunHistory, bound: Bound) -> Iterator[str]:
    """With `late`, at most (max_staleness + 1) batches of groups were ever open, when the last of them was issued.

    Steps up to the version of the issue were known to have ended then. When a drop was known is recorded nowhere: a
    dropped group does not count.
    """
    if not bound.is_late:
        return
    trained_in = {index: step for step, batch in batches_by_step(history) for index in batch.record.group_indices}
    dropped = {drop.group_index for drop in history.drops}
    limit, known, open_groups = (bound.versions + 1) * bound.batch_groups, -1, set[int]()
    for index, version in history.issued_at.items():
        if version != known:
            known = version
            open_groups = {one for one in open_groups if trained_in.get(one, version + 1) > version}
        if index not in dropped and trained_in.get(index, version + 1) > version:
            open_groups.add(index)
        if len(open_groups) > limit:
            yield f"group {index} was issued at version {version} as the {len(open_groups)}th open one of {limit}"


def missing(known: Set[int], first: int, last: int) -> Iterator[str]:
    """The numbers of [first, last] that are not known, in words: `4`, or `4 to 9` for a run of them."""
    expected = first
    for number in (*sorted(one for one in known if first <= one <= last), last + 1):
        if number > expected:
            yield str(expected) if number == expected + 1 else f"{expected} to {number - 1}"
        expected = number + 1


def trained_groups(history: RunHistory) -> set[str]:
    """Ids of all groups in a journaled batch."""
    return {group for batch in history.batches for group in batch.record.group_ids}
