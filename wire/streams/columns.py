"""Files with the ids that the tokens of a group were drawn from: too large for its entry, which names the file.

The service that puts a rollout group on the stream writes its file before, durably. Whoever needs the ids reads it by
the name in the group. The trainer removes it once no replay of its journal can need it.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from google.protobuf.message import DecodeError

from headrace.wire.contracts import ColumnFile, Header, Rollout, RolloutGroup, ScoredGroup
from headrace.wire.contracts.codec import ID_LISTS
from headrace.wire.errors import ContractError, DataError
from headrace.wire.host.regular_file import open_regular
from headrace.wire.rundir import atomic
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.telemetry.logs import get_logger
from headrace.wire.v1 import message_pb2 as pb

log = get_logger("wire.columns")
_MOST_IDS = 4096
"""Ids of one token: the limit that SGLang's server has by itself. Bounds what is read and held of a file."""


class LostColumnError(DataError):
    """The file with the ids of a journaled group is gone or damaged: no token is trained without its ids."""

    final = True


def write_kept(folder: Path, header: Header, rollouts: Sequence[Rollout]) -> ColumnFile:
    """Writes what the tokens of a group's rollouts were drawn from; durable on return. Raises OSError, DiskError."""
    lists = [pb.IdLists() if rollout.kept is None else ID_LISTS.to_pb(rollout.kept) for rollout in rollouts]
    data = pb.GroupColumn(group_id=header.group_id, rollouts=lists).SerializeToString()
    digest = hashlib.sha256(data).hexdigest()
    name = f"{header.group_index:09d}-{header.attempt}-{digest[:16]}.ids"
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_bytes(folder / name, data, durable=True)
    return ColumnFile(name=name, bytes=len(data), sha256=digest)


def with_kept(run_dir: Path, scored: ScoredGroup) -> ScoredGroup:
    """The group with the ids of its trained rollouts; as it is if its sampling keeps none.

    Raises ContractError (`bad_checksum`), which names group and file, if there is none, or it is damaged or of other
    tokens.
    """
    group = scored.group
    if group.kept is None:
        return scored
    path = _folder(run_dir, group) / group.kept.name
    name = group.rollouts[0].rollout_id.rpartition("/")[0]
    # The size comes over the wire, as the file does.
    tokens = sum(len(rollout.token_ids) for rollout in group.rollouts)
    most = min(group.kept.bytes, 4 * tokens * (_MOST_IDS + 1) + 1000 * (len(group.rollouts) + 1))
    try:
        with open_regular(path) as file:
            data = file.read(most + 1)
    except OSError as error:
        raise ContractError(
            "bad_checksum",
            f"{path}: the ids that the tokens of group {name} were drawn from cannot be read ({error.strerror}): all "
            "services must see one run directory",
        ) from error
    if len(data) != group.kept.bytes or hashlib.sha256(data).hexdigest() != group.kept.sha256:
        raise ContractError("bad_checksum", f"{path}: not the file that was written for group {name}")
    try:
        lists = [ID_LISTS.from_pb(one) for one in pb.GroupColumn.FromString(data).rollouts]
        if any(len(own.counts) and own.counts.max() > _MOST_IDS for own in lists):
            raise ContractError("bad_ids", f"a token was drawn from more than {_MOST_IDS} ids")
        rollouts = tuple(
            replace(rollout, kept=own) if len(rollout.token_ids) and index < group.prompt.trained else rollout
            for index, (rollout, own) in enumerate(zip(group.rollouts, lists, strict=True))
        )
    except (DecodeError, ValueError) as error:
        raise ContractError("bad_checksum", f"{path} of group {name}: {error}") from error
    return replace(scored, group=replace(group, rollouts=rollouts))


def remove_kept(run_dir: Path, is_over: Callable[[int], bool]) -> int:
    """Removes the files of all groups whose index `is_over`, and what killed writers left of them; returns how many."""
    gone = [path for index, path in _files(run_dir) if is_over(index)]
    for path in gone:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # Of a service that put something else there.
            log.warning("kept_ids_not_removed", path=str(path), reason=str(error))
    return len(gone)


def link_kept(run_dir: Path, target: Path, groups: Collection[int], link: Callable[[Path, Path], None]) -> None:
    """Links the files of some groups into another folder of the same layout.

    Before their batches: a live run removes a batch first, so that what is held of a batch is whole. Raises OSError.
    """
    for index, path in _files(run_dir):
        if index in groups:
            place = target / path.relative_to(run_dir)
            place.parent.mkdir(parents=True, exist_ok=True)
            link(path, place)


def _files(run_dir: Path) -> list[tuple[int, Path]]:
    """Files with ids, and what killed writers left of them, each with its group's index; no links are followed.

    The environment service may put links to other runs into its own folder.
    """
    run = RunPaths(run_dir)
    folders = [folder for folder in (run.kept_ids, run.played_ids) if not folder.is_symlink()]
    paths = [path for folder in folders for path in folder.glob("*[0-9]-*.ids*")]
    paths = [path for path in paths if path.is_file() and not path.is_symlink()]
    named = [(path.name.removeprefix(atomic.ASIDE).partition("-")[0], path) for path in paths]
    return [(int(index), path) for index, path in named if index.isdecimal()]


def _folder(run_dir: Path, group: RolloutGroup) -> Path:
    run = RunPaths(run_dir)
    return run.kept_ids if group.prompt.environment is None else run.played_ids
