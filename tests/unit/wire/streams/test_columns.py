"""Files with kept ids: what is written is what is trained, and nothing else is."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.wire.contracts import IdLists, RolloutGroup, Score, ScoredGroup
from headrace.wire.errors import ContractError
from headrace.wire.rundir.layout import RunPaths
from headrace.wire.streams.columns import remove_kept, with_kept, write_kept
from tests import builders


def written(run_dir: Path, index: int = 3) -> ScoredGroup:
    rollouts = builders.cut_rollouts(index)
    file = write_kept(RunPaths(run_dir).kept_ids, builders.header(index), rollouts)
    bare = builders.cut_group(index)
    group = RolloutGroup(prompt=bare.prompt, rollouts=bare.rollouts, kept=file)
    return ScoredGroup(group=group, scores=tuple(Score(rollout_id=one.rollout_id, value=1.0) for one in rollouts))


def test_a_group_gets_back_the_ids_that_were_written(tmp_path: Path) -> None:
    scored = written(tmp_path)
    for found, own in zip(with_kept(tmp_path, scored).group.rollouts, builders.cut_rollouts(3), strict=True):
        assert found.kept is not None and own.kept is not None
        np.testing.assert_array_equal(found.kept.counts, own.kept.counts)
        np.testing.assert_array_equal(found.kept.ids, own.kept.ids)


def test_ids_that_are_damaged_or_of_other_tokens_are_refused_by_group_rollout_and_file(tmp_path: Path) -> None:
    scored = written(tmp_path)
    assert scored.group.kept is not None
    path = RunPaths(tmp_path).kept_ids / scored.group.kept.name
    swapped = replace(scored.group, rollouts=(replace(scored.group.rollouts[0], token_ids=np.array([4, 4], np.int32)),
                                              scored.group.rollouts[1]))  # fmt: skip
    with pytest.raises(ContractError, match=rf"{path.name} of group .*g00000003/0: token 1 \(id 4\)") as refused:
        with_kept(tmp_path, replace(scored, group=swapped))
    assert refused.value.is_damage
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ContractError, match=f"{path.name}: not the file"):
        with_kept(tmp_path, scored)
    path.unlink()
    with pytest.raises(ContractError, match=f"{path.name}.*g00000003"):
        with_kept(tmp_path, scored)


def test_the_ids_of_episodes_are_copied_to_where_their_service_cannot_write(tmp_path: Path) -> None:
    run, bare = RunPaths(tmp_path), builders.played_group(3)
    ids = IdLists(counts=np.array([1, 0, 2, 1, 1], np.int32), ids=np.array([3, 4, 8, 5, 1], np.int32))
    rollouts = (replace(bare.rollouts[0], kept=ids), bare.rollouts[1])
    file = write_kept(run.played_ids, builders.header(3), rollouts)
    scores = tuple(Score(rollout_id=one.rollout_id, value=None) for one in rollouts)
    scored = ScoredGroup(group=replace(bare, kept=file), scores=scores)
    assert with_kept(tmp_path, scored).group.rollouts[0].kept is not None
    (run.played_ids / file.name).write_bytes(b"changed")
    found = with_kept(tmp_path, scored)
    assert found.group.rollouts[0].kept is not None and found.group.rollouts[1].kept is None
    shutil.rmtree(run.kept_ids)
    assert with_kept(tmp_path, found) is found, "read once"


def test_only_files_of_groups_that_are_over_are_removed(tmp_path: Path) -> None:
    scored = [written(tmp_path, index) for index in (1, 2)]
    folder = RunPaths(tmp_path).kept_ids
    left = folder / ".aside-000000001-0-aaaa.ids.12345678"
    for path in (left, folder / "notes.txt"):
        path.write_text("")
    elsewhere = RunPaths(tmp_path / "other").kept_ids
    written(tmp_path / "other", 1)
    played = RunPaths(tmp_path).played_ids
    played.parent.mkdir(parents=True)
    played.symlink_to(elsewhere)
    (folder / "000000001-0-bbbb.ids").mkdir()
    assert remove_kept(tmp_path, lambda index: index == 1) == 2
    assert len(list(elsewhere.iterdir())) == 1
    assert scored[1].group.kept is not None
    names = {path.name for path in folder.iterdir()}
    assert names == {scored[1].group.kept.name, "notes.txt", "000000001-0-bbbb.ids"}
