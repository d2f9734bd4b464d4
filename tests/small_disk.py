"""A real file system of a few MiB, to be filled to its last byte."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_BLOCK = 4096


class SmallDisk:
    """A tmpfs that is mounted at `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self, leave: int = 0) -> None:
        """Leaves about `leave` bytes free."""
        file = os.open(self._filler, os.O_WRONLY | os.O_CREAT)
        try:
            while leave == 0 or self.free() > leave:
                os.write(file, bytes(_BLOCK))
        except OSError:
            assert not leave
        finally:
            os.close(file)

    def free(self) -> int:
        """Free bytes."""
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def make_room(self) -> None:
        """Removes what `fill` wrote."""
        self._filler.unlink()


@contextlib.contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[SmallDisk]:
    """Mounts it at `folder`, which is made. The test is skipped where this process may not mount."""
    folder.mkdir(parents=True)
    options = ("-t", "tmpfs", "-o", f"size={mib}m", "tmpfs")
    try:
        mounted = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no `mount` here: no disk can be filled")
    if mounted.returncode:
        pytest.skip(f"this process may not mount a tmpfs, so no disk can be filled: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
