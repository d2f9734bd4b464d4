"""The rollouts of the journaled batches: sampled under proven weights, and not too old."""

from collections.abc import Iterator

from headrace.history.record import Batch, History, batches_by_step
from wire.contracts import Rollout, ScoredGroup, decode
from wire.errors import ContractError
from wire.journal import JournalDamagedError, read_payload


def look_at_rollouts(history: History, max_staleness: int, problems: list[str]) -> int:
    """Adds what is wrong with any trained rollout; returns how many steps' payloads are gone."""
    gone = 0
    for step, batch in batches_by_step(history):
        try:
            groups = list(_groups(history, batch))
        except FileNotFoundError:
            gone += 1
        except (JournalDamagedError, ContractError) as error:
            problems.append(f"the rollouts of step {step} cannot be read: {error}")
        else:
            problems += _about_step(history, batch, groups, max_staleness)
    return gone


def _groups(history: History, batch: Batch) -> Iterator[tuple[str, ScoredGroup]]:
    for data in read_payload(history.run_dir / "journal", batch.record):
        message = decode(data)
        if not isinstance(message.body, ScoredGroup):
            raise ContractError("bad_batch", f"{message.header.group_id} is a {type(message.body).__name__}")
        yield message.header.group_id, message.body


def _about_step(
    history: History, batch: Batch, groups: list[tuple[str, ScoredGroup]], max_staleness: int
) -> Iterator[str]:
    record = batch.record
    if tuple(name for name, _ in groups) != record.group_ids:
        yield f"the payload of step {record.step} has other groups than its record"
    for name, scored in groups:
        staleness = record.step - 1 - scored.group.min_version
        if staleness > max_staleness:
            yield f"group {name} was {staleness} versions old in step {record.step}, {max_staleness} are allowed"
        for rollout in scored.group.rollouts:
            yield from _about_rollout(history, record.step, scored.group.replica_id, rollout)


def _about_rollout(history: History, step: int, replica: str, rollout: Rollout) -> Iterator[str]:
    for span in rollout.spans:
        version = span.version
        if version.version > step - 1:
            yield f"rollout {rollout.rollout_id} of step {step} was sampled under version {version}, which is later"
        key = (replica, version.incarnation, version.version, span.weights_digest)
        if key not in history.committed:
            yield (
                f"rollout {rollout.rollout_id} of step {step} was sampled under weights {version} "
                f"({span.weights_digest[:12] or 'no digest'}) that replica {replica} never committed"
            )
