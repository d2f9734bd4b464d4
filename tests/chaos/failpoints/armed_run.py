"""A tiny run whose services die at armed failpoints."""

import json
import time
from pathlib import Path

from headrace.wire.process.failpoints import VARIABLE
from tests.e2e.broker_log import remove
from tests.e2e.episodes import played_run
from tests.e2e.harness import TinyRun
from tests.e2e.paced import PACE

SCORED, PLAYED = "scored", "played"
VARIANTS = (SCORED, PLAYED)
"""Rows that a replica samples at once, on two replicas; and rows that an environment plays, on one."""
_INSTANCE = {"rollout": "rollout-0", "reward": "reward-0", "environment": "environment-0"}


class ArmedRun:
    """A run, and the folder through which its services are killed."""

    def __init__(self, folder: Path, variant: str, steps: int) -> None:
        folder.mkdir(parents=True)
        self.points = folder / "failpoints"
        for kind in ("armed", "reached", "struck"):
            (self.points / kind).mkdir(parents=True)
        made = TinyRun(folder / "tiny", steps=steps) if variant == SCORED else played_run(folder / "tiny", steps=steps)
        made.environment = {VARIABLE: str(self.points)}
        self.run: TinyRun = made
        self._scorer = {"name": "length", "options": {"target": 3}} if variant == SCORED else {"name": "environment"}
        self._slow = made.folder / "slow"

    def start(self) -> None:
        """Starts it with steps that take their time, most of it a scorer's, until `hurry`."""
        (self.run.folder / "pace.py").write_text(PACE)
        self._slow.touch()
        scorers = json.dumps([self._scorer, {"name": "pace:slowly"}])
        self.run.start(f"--reward.scorers={scorers}", f"--reward.path={self.run.folder}")

    def hurry(self) -> None:
        """Ends the slowness."""
        self._slow.unlink(missing_ok=True)

    @property
    def lives(self) -> bool:
        """Whether `headrace train` has not ended."""
        return self.run.process is not None and self.run.process.poll() is None

    def reached(self) -> set[str]:
        """SERVICE.POINT of all points that some process has reached."""
        return {path.name for path in (self.points / "reached").iterdir()}

    def struck(self) -> dict[str, float]:
        """SERVICE.POINT -> unix time of its kill."""
        return {path.name: path.stat().st_mtime for path in (self.points / "struck").iterdir()}

    def arm(self, name: str, passes: int) -> None:
        """The next process that has passed the point `passes` times dies there."""
        aside = self.points / f".{name}"
        aside.write_text(str(passes))
        aside.rename(self.points / "armed" / name)

    def rearm(self, name: str) -> None:
        """As `arm` with no passes, if the point is still armed."""
        if (self.points / "armed" / name).exists():
            self.arm(name, 0)

    def kill(self, name: str) -> None:
        """Kills the service of a point wherever it stands: some points are reached at a start alone."""
        service = name.partition(".")[0]
        self.run.kill(_INSTANCE.get(service, service))

    def lose_streams(self) -> None:
        """Kills the embedded broker, which starts again without a group in any stream."""
        self.run.kill_broker_over(remove)

    def wait_for(self, name: str, seconds: float) -> bool:
        """Whether the armed point strikes, or struck, within these seconds; ends early with the run."""
        end = time.monotonic() + seconds
        while name not in self.struck():
            if time.monotonic() > end or not self.lives:
                return name in self.struck()
            time.sleep(0.02)
        return True

    def wait_for_steps(self, more: int) -> None:
        """Waits until so many further steps are trained, or the run has ended."""
        goal = self.run.steps() + more
        self.run.wait_until(lambda: self.run.steps() >= goal or not self.lives, f"step {goal}")
