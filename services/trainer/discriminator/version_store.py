"""The versions of a discriminator on disk, `RUN/discriminator/version-000012/`, and which of them is current.

A version is written whole or not at all; only then does the file `current` name it and the digest of its weights.
Readers (the reward service's scorer) watch that file.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from headrace.wire.rundir import atomic
from headrace.wire.telemetry.logs import get_logger

CURRENT = "current"
_KEEP = 2
_NAME = re.compile(r"version-(\d{6,})")
log = get_logger("trainer.discriminator")


class VersionStore:
    """Writes versions; used by rank 0 only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, version: int, write: Callable[[Path], str]) -> None:
        """Makes `version` the current one; `write` writes a folder, whole and durable, and returns its digest.

        The newest of the older versions stays, for scorers still reading it. Later ones, left by a lost life, are
        deleted.
        """
        name = f"version-{version:06d}"
        self._folder.mkdir(parents=True, exist_ok=True)
        digest = write(self._folder / name)
        # A resumed trainer takes the version from its checkpoint and expects scorers to have it.
        atomic.write_text(self._folder / CURRENT, f"{name} {digest}\n", durable=True)
        self._prune(version)
        log.info("discriminator_published", version=version, digest=digest)

    def _prune(self, version: int) -> None:
        found = sorted(
            (int(match.group(1)), path)
            for path in self._folder.iterdir()
            if (match := _NAME.fullmatch(path.name)) is not None
        )
        kept = [number for number, _ in found if number <= version][-_KEEP:]
        for number, path in found:
            if number not in kept:
                shutil.rmtree(path)
