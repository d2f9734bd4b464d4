"""Lives of one process outside of a run, of which each may end at a failpoint."""

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ALONE_PY = Path(__file__).with_name("alone.py")


@dataclass(frozen=True, slots=True)
class Lives:
    """What `alone.py` does, with the folder of its failpoints."""

    points: Path

    def __post_init__(self) -> None:
        for kind in ("armed", "reached", "struck"):
            (self.points / kind).mkdir(parents=True, exist_ok=True)

    def run(self, *arguments: str) -> int:
        """The exit status of one life."""
        command = [sys.executable, str(ALONE_PY), str(self.points), *arguments]
        return subprocess.run(command, timeout=120, check=False).returncode

    def killed_at(self, point: str, *arguments: str) -> bool:
        """Whether a life was killed at the point."""
        name = f"reward.{point}"
        (self.points / "armed" / name).write_text("0")
        return self.run(*arguments) == -signal.SIGKILL and (self.points / "struck" / name).exists()

    def calls(self) -> int:
        """How often a handler was called, in all lives."""
        return (self.points / "calls").read_text().count("\n")
