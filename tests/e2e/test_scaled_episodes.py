"""Environment services come and go during a run: all of them play, and no episode is lost."""

from pathlib import Path

import pytest

from headrace.run.execute import STOPPED
from headrace.wire.rundir.events import read_events
from tests.e2e.episodes import GAME, played_run
from tests.e2e.harness import TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

STEPS = 2000
"""More than pass before a stop."""
PACED = GAME.replace("        self.turns,", "        __import__('time').sleep(0.3)\n        self.turns,")


def test_1_to_3_to_1_environment_services_during_a_run(tmp_path: Path) -> None:
    assert PACED != GAME
    run = played_run(tmp_path / "tiny", game=PACED, steps=STEPS, staleness=1, deterministic=False)
    try:
        run.start("--eval.every=100")
        run.wait_for_step(1)
        # What is edited after the start is not what further services play.
        (run.folder / "game" / "game.py").write_text("raise RuntimeError\n")
        assert run.scale(3, "environment").split("\n")[:2] == ["environment-1 is started", "environment-2 is started"]
        run.wait_until(lambda: workers(run) == {"environment-0", "environment-1", "environment-2"}, "all to play")
        pids = [run.pid(f"environment-{index}") for index in (1, 2)]
        assert "environment-1 drains" in run.scale(1, "environment")
        run.wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the two to end")
        run.wait_for_step(len(run.metrics()) + 2)
        assert run.stop() == STOPPED
    finally:
        run.close()
    groups = run.check()["groups"]
    assert groups["trained"] == 4 * len(run.metrics()) and groups["dropped"] == {}, groups
    # What was in play at the stop is issued, and waits for a resume.
    assert groups["issued"] == groups["trained"] + groups["open"], groups


def workers(run: TinyRun) -> set[str]:
    """The services that have played a group to its end."""
    played = [one["source"] for one in read_events(run.run_dir) if one["event"] == "group_generated"]
    return {source.rpartition("-")[0] for source in played}
