"""A power failure at any moment of a checkpoint: the new one or the one before is loaded, never a mixture."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.services.trainer.durability.checkpoint import CheckpointStore
from headrace.wire.rundir import atomic
from tests.crash import SECTOR
from tests.unit.services.trainer.durability.test_checkpoint import save


class Recorder:
    """What a crash may leave after each sync and each rename: files that were not synced have lost sectors."""

    def __init__(self, folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.out = folder, out
        self.synced: set[int] = set()
        self.left: list[Path] = []
        real_sync, real_rename = atomic.sync, Path.rename

        def sync(path: Path) -> None:
            self.take()
            real_sync(path)
            self.synced.add(path.stat().st_ino)
            self.take()

        def rename(path: Path, target: Path) -> Path:
            self.take()
            moved = real_rename(path, target)
            self.take()
            return moved

        monkeypatch.setattr(atomic, "sync", sync)
        monkeypatch.setattr(Path, "rename", rename)

    def take(self) -> None:
        """Copies the folder twice: unsynced files lose all their sectors, or every second one."""
        for stride in (1, 2):
            copy = self.out / f"{len(self.left)}"
            shutil.copytree(self.folder, copy)
            for path in self.folder.rglob("*"):
                if path.is_file() and path.stat().st_ino not in self.synced:
                    data = bytearray(path.read_bytes())
                    for at in range(0, len(data), SECTOR * stride):
                        data[at : at + SECTOR] = bytes(len(data[at : at + SECTOR]))
                    (copy / path.relative_to(self.folder)).write_bytes(data)
            self.left.append(copy)


@pytest.fixture
def crash_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int | None]]:
    """Saves step 2 behind step 1 and returns which step is loaded after a crash at each moment."""

    def act() -> list[int | None]:
        folder, out = tmp_path / "checkpoints", tmp_path / "out"
        out.mkdir()
        store = CheckpointStore(folder, keep=2)
        save(store, 1)
        with monkeypatch.context() as patched:
            recorder = Recorder(folder, out, patched)
            recorder.synced = {path.stat().st_ino for path in folder.rglob("*")}
            save(store, 2, value=2.0)
        found: list[int | None] = []
        for left in recorder.left:
            newest = CheckpointStore(left, keep=2).newest()
            if newest is not None:
                assert newest.weights["a"].unique().tolist() == [float(newest.state.step)]
            found.append(newest.state.step if newest else None)
        return found

    return act


def test_the_older_one_is_loaded_until_the_new_one_is_whole(crash_while: Callable[[], list[int | None]]) -> None:
    found = crash_while()
    assert len(found) > 10 and found[0] == 1 and found[-1] == 2 and None not in found
    assert found == sorted(step or 0 for step in found), "a later crash must not lose what an earlier one kept"
