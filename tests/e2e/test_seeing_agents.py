"""An episode of a program, played for a look: with the replicas of a live run, and with a checkpoint."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.episodes import AGENT, AGENT_TABLE, played_run
from tests.e2e.harness import TinyRun
from tests.e2e.test_seeing_episodes import check_conversation
from tests.verbs import result, said

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]
OWN = 0.7
"""The run's temperature, which the program asks for itself: a run honours that one alone."""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[TinyRun]:
    """A long run in which every row is a program's task."""
    if shutil.which("bwrap") is None and os.environ.get("HEADRACE_REQUIRE_SANDBOX") != "1":
        pytest.skip("there is no bubblewrap (apt-get install bubblewrap)")
    made = played_run(tmp_path / "tiny", table=AGENT_TABLE, steps=2000, staleness=1)
    stated = AGENT.replace('"messages": messages}', f'"messages": messages, "temperature": {OWN}}}')
    assert stated != AGENT
    (made.folder / "game" / "agent.py").write_text(stated)
    yield made
    made.close()


def test_a_program_is_played_for_a_look(run: TinyRun) -> None:
    run.start(f"--rollout.sampling.temperature={OWN}", "--eval.every=100000")
    run.wait_for_step(2)
    look = ("generate", run.run_dir, "--environment", "--seed", 3)
    live: dict[str, Any] = result(*look, "--prompt", "1+2=")
    asked, answered = live["episode"]["messages"][:2]
    assert (asked["content"], answered["turn"]) == ("1+2", 0), live
    assert answered["replica_id"] == "rollout-0" and answered["versions"][0].startswith("1.")
    assert live["episode"]["reward"] in (0.0, 1.0) and len(live["logprobs"]) == len(live["token_ids"])
    failed = said(*look, "--task", '{"question": "1+2="}')
    assert "ended by environment_error" in failed and "KeyError: 'prompt'" in failed, failed
    run.stop()
    ended = said(*look, "--temperature", 0)
    check_conversation(ended)
    assert "on here" in ended and "environment: reward" in ended
    with (run.run_dir / "environment" / "agent.py").open("a") as file:
        file.write("# another program\n")
    assert "agent.py" in said(*look, "--temperature", 0, status=2)
