"""The chain of digests: journal -> committed weights, and events -> checkpoints, rollouts, export. Pure, as `rules`.

Each rule takes a history, where needed what was found on disk, and yields the violations.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from headrace.inspect.history.found import FoundCheckpoint, FoundExport, FoundFiles
from headrace.inspect.history.record import RunHistory
from headrace.inspect.history.rules import missing
from headrace.wire.contracts.digests import same_weights

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


def weights_agree(history: RunHistory) -> Iterator[str]:
    """What replicas committed are the weights that the journal names for that version and life of the trainer."""
    newest = max(history.incarnations, default=0)
    for replica, incarnation, version, digest in sorted(history.committed):
        journaled = history.versions.get((incarnation, version))
        if journaled is None:
            if incarnation >= newest:
                yield f"{replica} committed weights {incarnation}.{version}, which the journal does not have"
        elif same_weights(digest, journaled) is False:
            yield (
                f"{replica} committed weights {incarnation}.{version} as {digest[:17]}, the journal has "
                f"{journaled[:17]} for them"
            )


def config_is_recorded(history: RunHistory, config: Mapping[str, str]) -> Iterator[str]:
    """The config's files are as a life of the trainer, or a command that resumed the run, recorded them."""
    if not history.configs or config in history.configs:
        return
    wanted = history.configs[-1]
    for name in sorted(config.keys() | wanted.keys()):
        if config.get(name) != wanted.get(name):
            yield f"{name} is not as the run recorded it: it was changed after the run had begun with it"


def checkpoints_are_whole(history: RunHistory, found: Sequence[FoundCheckpoint]) -> Iterator[str]:
    """Kept checkpoints match their manifests, and these the trainer's events."""
    manifests = {one.step: one.manifest for one in history.checkpoints}
    for one in found:
        if one.problem:
            yield f"the checkpoint of step {one.step} cannot be resumed from: {one.problem}"
        elif manifests.get(one.step, one.manifest) != one.manifest:
            yield f"the checkpoint of step {one.step} is not the one that the trainer recorded"


def export_is_the_trainers(history: RunHistory, found: FoundExport, last_step: int) -> Iterator[str]:
    """The exported model is, file by file, what the trainer recorded, of the run's last step."""
    record = history.export
    if not found.exists or record is None:
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


def metrics_are_whole(lines: Mapping[int, int], *, ended: bool, last_step: int) -> Iterator[str]:
    """Each step of an ended run has one line in metrics.jsonl. `lines`: step -> how many it has."""
    for step, count in sorted(lines.items()):
        if count > 1:
            yield f"metrics.jsonl has {count} lines of step {step}"
    if ended:
        for steps in missing(lines.keys(), 1, last_step):
            yield f"metrics.jsonl has no line of step {steps}"


def rollouts_are_the_trainers(history: RunHistory, found: Mapping[int, str]) -> Iterator[str]:
    """The files in rollouts/ are those that the trainer recorded. `found`: step -> sha256 of each file."""
    for step, digest in sorted(found.items()):
        if history.recorded_rollouts.get(step, digest) != digest:
            yield f"the rollouts of step {step} are not those that the trainer recorded"


def gone(history: RunHistory, found: FoundFiles) -> Iterator[str]:
    """Files that the trainer recorded as kept and that are no longer there, in words: lost or removed."""
    there = {one.step for one in found.checkpoints}
    if history.checkpoints:
        newest = history.checkpoints[-1]
        # A life that was killed after a later checkpoint has removed older ones, and recorded neither.
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
