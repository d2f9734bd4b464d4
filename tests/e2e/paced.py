"""A run whose steps take their time, most of it a scorer's, for as long as a test needs that."""

import json

from tests.e2e.harness import TinyRun

PACE = """
import pathlib, time
SLOW = pathlib.Path(__file__).with_name("slow")
def slowly(text, **_):
    time.sleep(0.1 if SLOW.exists() else 0.0)
    return 0.0
"""
SCORERS = [{"name": "length", "options": {"target": 3}}, {"name": "pace:slowly"}]


class PacedRun(TinyRun):
    """Takes its time until `hurry`: the machine's speed decides nothing."""

    def begin(self, *arguments: str) -> None:
        (self.folder / "pace.py").write_text(PACE)
        (self.folder / "slow").touch()
        self.start(f"--reward.scorers={json.dumps(SCORERS)}", f"--reward.path={self.folder}", *arguments)

    def hurry(self) -> None:
        (self.folder / "slow").unlink()

    def notices(self) -> str:
        return (self.folder / "stderr.log").read_text()
