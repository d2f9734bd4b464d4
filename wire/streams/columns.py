"""Files with the ids that the tokens of a group were drawn from: too large for its entry, which names the file.

The service that puts a rollout group on the stream writes its file before, durably. The trainer reads it by the name in
the group, copies what an environment service wrote, and removes it once no replay of its journal can need it.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from google.protobuf.message import DecodeError

from headrace.wire.contracts import ColumnFile, Header, Rollout, ScoredGroup
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
    data = pb.GroupColumn(rollouts=lists).SerializeToString()
    digest = hashlib.sha256(data).hexdigest()
    name = f"{header.group_index:09d}-{header.attempt}-{digest[:16]}.ids"
    _write(folder / name, data)
    return ColumnFile(name=name, bytes=len(data), sha256=digest)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_bytes(path, data, durable=True)


def with_kept(run_dir: Path, scored: ScoredGroup) -> ScoredGroup:
    """The group with the ids of its trained rollouts; as it is if it has them, or if its sampling keeps none.

    The file of an episode is first read in the environment service's folder and, if it is valid, copied to the others:
    from then on that service cannot change it. Raises ContractError (`bad_checksum`), which names group and file, if
    there is none, or it is damaged or of other tokens; OSError, DiskError if the copy fails.
    """
    group, run = scored.group, RunPaths(run_dir)
    if group.kept is None or any(rollout.kept is not None for rollout in group.rollouts):
        return scored
    own = run.kept_ids / group.kept.name
    is_played = group.prompt.environment is not None and not own.exists()
    path = run.played_ids / own.name if is_played else own
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
        if any(len(one.counts) and one.counts.max() > _MOST_IDS for one in lists):
            raise ContractError("bad_ids", f"a token was drawn from more than {_MOST_IDS} ids")
        rollouts = tuple(
            replace(rollout, kept=ids) if len(rollout.token_ids) and index < group.prompt.trained else rollout
            for index, (rollout, ids) in enumerate(zip(group.rollouts, lists, strict=True))
        )
    except (DecodeError, ValueError) as error:
        raise ContractError("bad_checksum", f"{path} of group {name}: {error}") from error
    if is_played:
        _write(own, data)
    return replace(scored, group=replace(group, rollouts=rollouts))


def remove_kept(run_dir: Path, is_over: Callable[[int], bool]) -> int:
    """Removes the files of all groups whose index `is_over`, and what killed writers left of them; returns how many."""
    run = RunPaths(run_dir)
    gone = [path for folder in (run.kept_ids, run.played_ids) for index, path in _files(folder) if is_over(index)]
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
    for index, path in _files(RunPaths(run_dir).kept_ids):
        if index in groups:
            place = RunPaths(target).kept_ids / path.name
            place.parent.mkdir(parents=True, exist_ok=True)
            link(path, place)


def _files(folder: Path) -> list[tuple[int, Path]]:
    """Files with ids, and what killed writers left of them, each with its group's index; no links are followed.

    The environment service may put links to other runs into its own folder.
    """
    paths = [] if folder.is_symlink() else folder.glob("*[0-9]-*.ids*")
    paths = [path for path in paths if path.is_file() and not path.is_symlink()]
    named = [(path.name.removeprefix(atomic.ASIDE).partition("-")[0], path) for path in paths]
    return [(int(index), path) for index, path in named if index.isdecimal()]
