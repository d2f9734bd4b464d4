"""The chain of digests: journal -> events -> committed weights -> checkpoints -> export. Pure, as `rules`.

Each rule takes a history, where needed what was found on disk, and yields the violations.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from headrace.inspect.history.found import FoundCheckpoint, FoundExport, FoundFiles
from headrace.inspect.history.lines import TRAINER
from headrace.inspect.history.record import Entry, RunHistory, batches_by_step
from headrace.inspect.history.rules import missing
from headrace.wire.digests import same_weights

_NAMED = 3


def steps_end_once(history: RunHistory) -> Iterator[str]:
    """The end of a step is journaled once, and `run_ended` names the last one."""
    for step, count in sorted(Counter(history.done).items()):
        if count > 1:
            yield f"the end of step {step} is {count} times in the journal"
    if history.has_ended and history.ended_version != history.last_step:
        yield (
            f"the run ended at version {history.ended_version}, but the last step whose end the journal has is "
            f"{history.last_step}"
        )


def trainer_events_are_whole(history: RunHistory) -> Iterator[str]:
    """The events of each life of the trainer match its journal segment, in the same order.

    The journal is written first, so a killed life lacks the events of its last write. What a superseded life wrote
    beyond its segment's seal is void: there the events go on.
    """
    newest = max(history.incarnations, default=0)
    for incarnation, entries in sorted(history.journaled.items()):
        name = f"{TRAINER}{incarnation}"
        reported = history.reported.get(incarnation, [])
        is_chained = any(life.source == name and life.config is not None for life in history.lives)
        if not is_chained:
            if name not in history.event_lines and not _is_one_write(entries):
                yield f"the events of {name} are gone, though the journal shows that it trained or dropped groups"
            continue
        for there, wanted in zip(reported, entries, strict=False):
            if there != wanted:
                yield f"the events of {name} record {_words(there)} where the journal has {_words(wanted)}"
                break
        else:
            if not _is_one_write(entries[len(reported) :]):
                yield f"the events of {name} end before {_words(entries[len(reported)])}, which the journal has"
            if len(reported) > len(entries) and incarnation == newest:
                yield f"the events of {name} record {_words(reported[len(entries)])}, which the journal does not have"


def lives_are_the_journals(history: RunHistory) -> Iterator[str]:
    """Each log of the trainer is of a life that has a journal segment: a life opens that first."""
    known = {f"{TRAINER}{incarnation}" for incarnation in history.segments}
    for name in sorted(history.event_lines):
        if name.startswith(TRAINER) and name not in known:
            yield f"events/{name}.jsonl is of a life of the trainer that has no journal segment"


def log_is_the_stages(history: RunHistory, stage: str) -> Iterator[str]:
    """A stage without a journal has one log of the trainer, for all its lives."""
    for name in sorted(history.event_lines):
        if name.startswith(TRAINER) and name != f"{TRAINER}{stage}":
            yield f"events/{name}.jsonl is no log of the stage {stage}"


def _is_one_write(entries: Sequence[Entry]) -> bool:
    """Whether one write to the journal may have made all of these: a batch, the end of a step, or some drops."""
    return len(entries) <= 1 or all(kind == "dropped" for kind, _ in entries)


def _words(entry: Entry) -> str:
    kind, content = entry
    step, _, digest = content.partition(" ")
    return f"group {content} dropped" if kind == "dropped" else f"{kind} {step} ({digest[:17]})"


def workers_reported(history: RunHistory) -> Iterator[str]:
    """Each group that was trained behind the chain's beginning was reported as generated and as scored.

    One that was issued before may come from services of an older version.
    """
    for what, known in (("generated", history.generated), ("scored", history.scored)):
        absent = [
            group
            for step, batch in batches_by_step(history)
            if step > history.unchained
            for group in batch.record.group_ids
            if group not in known and history.issued_at.get(group, 0.0) >= history.chained_since
        ]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            yield f"group {absent[0]}{more} was trained, but no service reported it as {what}"


def weights_agree(history: RunHistory) -> Iterator[str]:
    """What replicas committed are the weights that the journal names for that version and life of the trainer."""
    known: dict[tuple[int, int], str] = {}
    for one in history.versions:
        known[one.incarnation, one.version] = one.digest
    chained = {life.source for life in history.lives if life.config is not None}
    newest = max(history.incarnations, default=0)
    for replica, incarnation, version, digest in sorted(history.committed):
        journaled = known.get((incarnation, version))
        if journaled is None:
            if incarnation >= newest and f"{TRAINER}{newest}" in chained:
                yield f"{replica} committed weights {incarnation}.{version}, which the journal does not have"
        elif same_weights(digest, journaled) is False:
            yield (
                f"{replica} committed weights {incarnation}.{version} as {digest[:17]}, the journal has "
                f"{journaled[:17]} for them"
            )


def config_is_that_of_the_last_life(history: RunHistory, config: Mapping[str, str]) -> Iterator[str]:
    """The config's files are those that the newest life of the trainer, or a later command, recorded."""
    recorded = [(place, life) for place, life in enumerate(history.lives) if life.config is not None]
    lives = [(place, life) for place, life in recorded if not life.is_command]
    if not lives:
        return
    newest = max(lives, key=lambda pair: pair[0])[1]
    later = [life.config or {} for _, life in recorded if life.is_command and life.t >= newest.t]
    accepted = [newest.config or {}, *later]
    if any(config == one for one in accepted):
        return
    wanted = accepted[-1]
    for name in sorted(config.keys() | wanted.keys()):
        if config.get(name) != wanted.get(name):
            yield f"{name} is not as {newest.source} recorded it: it was changed after the run had begun with it"


def receipts_are_kept(history: RunHistory, chain: Sequence[str]) -> Iterator[str]:
    """The receipts that the trainer recorded are those of lines in receipts.jsonl."""
    gone = [one for one in history.receipts if one not in set(chain)]
    if gone:
        yield f"receipts.jsonl has no line with the receipt {gone[0][:12]}, which the trainer recorded"


def checkpoints_are_whole(history: RunHistory, found: Sequence[FoundCheckpoint], last_step: int) -> Iterator[str]:
    """Kept checkpoints match their manifests, these the trainer's events, and their weights the journal."""
    manifests = {one.step: one.manifest for one in history.checkpoints}
    for one in found:
        where = f"the checkpoint of step {one.step}"
        if one.problem:
            yield f"{where} cannot be resumed from: {one.problem}"
        elif manifests.get(one.step, one.manifest) != one.manifest:
            yield f"{where} is not the one that the trainer recorded"
        if one.step > last_step:
            yield f"{where} is of a step that the run never ended"
        digests = {version.digest for version in history.versions if version.version == one.step}
        if one.weights_digest and digests and one.weights_digest not in digests:
            yield f"{where} has weights {one.weights_digest[:17]}, the journal has {min(digests)[:17]} for that step"


def export_is_the_trainers(history: RunHistory, found: FoundExport, last_step: int) -> Iterator[str]:
    """The exported model is, file by file, what the trainer recorded, of the run's last step."""
    record = history.export
    if not found.exists:
        return
    if record is None:
        if history.has_ended:
            yield "there is an export, which the trainer never recorded"
        return
    is_older = record.step is not None and record.step < last_step and not history.has_ended
    if is_older and found.files != record.files:
        return  # Killed between the newer export and its record.
    if found.weights_sha256 is not None and found.weights_sha256 != record.weights_sha256:
        yield f"the exported weights are not those that the trainer exported ({record.weights_sha256[:12]})"
    if record.files is not None:
        for name in sorted(found.files.keys() | record.files.keys()):
            if found.files.get(name) != record.files.get(name):
                yield f"export/{name} is not as the trainer wrote it"
    if record.step is not None and history.has_ended and record.step != last_step:
        yield f"the export is of step {record.step}, but the last step is {last_step}"
    digests = {version.digest for version in history.versions if version.version == record.step}
    if record.weights_digest and digests and record.weights_digest not in digests:
        yield f"the export is recorded as of weights {record.weights_digest[:17]}, not those of step {record.step}"
    if found.twin is not None and found.weights_sha256 is not None and found.twin != found.weights_sha256:
        yield f"the exported weights differ from those of the checkpoint of step {record.step}"


def metrics_are_the_trainers(
    history: RunHistory, lines: Mapping[int, Sequence[str]], *, ended: bool, last_step: int
) -> Iterator[str]:
    """Each step has one line in metrics.jsonl, the one that the trainer recorded. `lines`: step -> their sha256."""
    highest = max([last_step, *(batch.record.step for batch in history.batches)])
    for step, digests in sorted(lines.items()):
        if len(digests) > 1:
            yield f"metrics.jsonl has {len(digests)} lines of step {step}"
        if step > highest or step < 1:
            yield f"metrics.jsonl has a line of step {step}, which the run never took"
    wrong = [
        step for step, known in sorted(history.recorded_metrics.items()) if not known.intersection(lines.get(step, ()))
    ]
    for step in wrong[:_NAMED]:
        yield f"the line of step {step} in metrics.jsonl is not the one that the trainer recorded"
    if len(wrong) > _NAMED:
        yield f"{len(wrong) - _NAMED} more lines of metrics.jsonl are not those that the trainer recorded"
    if ended:
        for steps in missing({*lines, *history.recorded_metrics}, history.unchained + 1, last_step):
            yield f"metrics.jsonl has no line of step {steps}"


def rollouts_are_the_trainers(history: RunHistory, found: Mapping[int, str]) -> Iterator[str]:
    """The files in rollouts/ are those that the trainer recorded. `found`: step -> sha256 of each file."""
    highest = max((batch.record.step for batch in history.batches), default=0)
    for step, digest in sorted(found.items()):
        if step > highest:
            yield f"rollouts/ has a file of step {step}, for which the journal has no batch"
        elif history.recorded_rollouts.get(step, digest) != digest:
            yield f"the rollouts of step {step} are not those that the trainer recorded"


def gone(history: RunHistory, found: FoundFiles) -> Iterator[str]:
    """Files that the trainer recorded as kept and that are no longer there, in words: lost or removed, not forged."""
    there = {one.step for one in found.checkpoints}
    if history.checkpoints:
        newest = history.checkpoints[-1]
        # A life that was killed behind a later checkpoint has removed older ones, and recorded neither.
        if not any(step > newest.step for step in there):
            lost = sorted(set(newest.kept) - there)
            if lost:
                yield f"the checkpoint of step {', '.join(map(str, lost))}"
    steps = [
        step
        for step in sorted(history.recorded_rollouts)
        if step >= history.rollouts_from and step not in found.rollouts
    ]
    if steps:
        yield f"the rollouts of step {', '.join(map(str, steps[:_NAMED]))}" + (" and more" if steps[_NAMED:] else "")
    if history.export is not None and not found.export.exists:
        yield "the export"
