"""A folder of unix sockets that only this user may enter: in the run directory, or outside where that cannot serve."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

_SUN_PATH = 100
"""A unix socket's path must fit into 107 bytes; servers add a suffix while they bind."""

_OF_ADDRESSES = frozenset("%#?,")
"""In the address of a socket gRPC takes them for marks of its own, `,` for the next address."""


@dataclass(frozen=True, slots=True)
class SocketFolder:
    """Where the sockets are, from `make` to `clean`."""

    path: Path

    @classmethod
    def make(cls, folder: Path, longest: str) -> "SocketFolder":
        """Makes `folder`, or one outside if a socket there of the name `longest` could not be used. Raises OSError."""
        is_outside = len(os.fsencode(folder / longest)) > _SUN_PATH or not _OF_ADDRESSES.isdisjoint(str(folder))
        if is_outside:
            folder = Path(tempfile.mkdtemp(prefix="headrace-"))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # It may be of an earlier start, under another umask.
        folder.chmod(0o700)
        return cls(folder)

    def clean(self) -> None:
        """Removes it with what processes have left there: no program copies a run directory that has sockets."""
        shutil.rmtree(self.path, ignore_errors=True)
