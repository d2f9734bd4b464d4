"""The example of an agent, run to its end once for all workers, and short runs of its task on the trained model."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.wire.rundir.events import read_events
from tests.e2e.episodes import kill_a_child
from tests.e2e.harness import TinyRun
from tests.shared import made_once

EXAMPLE = Path(__file__).parents[2] / "examples" / "tools"
_STEPS, _GROUPS, _SIZE = 5, 4, 4
_TRAIN_S = 2300
SAID = "said.txt"
"""What the example wrote to stdout."""


def trained(factory: pytest.TempPathFactory) -> Path:
    """The session's folder of the example once it has run: `data/`, `sft/`, `rl/`."""
    return made_once(factory, "tools-example", _train)


def _train(folder: Path) -> None:
    bash = shutil.which("bash")
    assert bash
    folder.mkdir()
    done = subprocess.run(
        [bash, str(EXAMPLE / "run.sh"), str(folder)],
        # At staleness 0 each sampled token is compared with the trainer's logprob of it.
        env=os.environ | {"HEADRACE": f"{sys.executable} -P -m headrace", "RL_OPTIONS": "--run.max_staleness=0"},
        capture_output=True,
        text=True,
        timeout=_TRAIN_S,
        check=False,
    )
    logs = "".join(f"\n--- {path}\n{path.read_text()[-2000:]}" for path in folder.glob("*/logs/*.log"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:] + logs
    (folder / SAID).write_text(done.stdout)


class ExampleRun(TinyRun):
    """Five steps of four groups of four, with the policy that the example has trained: it has learned to call."""

    def __init__(self, folder: Path, example: Path, environment: dict[str, object], data: Sequence[str] = ()) -> None:
        """`environment`: keys of the table `[environment]`, None for one that is left out; `data`: where rows are."""
        self.folder, self.process = folder, None
        self.run_dir = folder / "run"
        self._example, self._data = example, data
        text = (EXAMPLE / "run.toml").read_text()
        before, table, after = re.split(r"(?<=\[environment\]\n)(.*?)(?=\n\[)", text, maxsplit=1, flags=re.DOTALL)
        kept = [line for line in table.splitlines() if line.split(" ")[0] not in {"name", *environment}]
        given = {key: value for key, value in environment.items() if value is not None}
        lines = [*kept, *(f"{key} = {json.dumps(value)}" for key, value in given.items())]
        (folder / "run.toml").write_text("\n".join([before.rstrip(), *lines, after]))

    def begin(self, *arguments: str) -> None:
        """Starts the example's run in small."""
        self.start(
            *("--model.path", str(self._example / "rl" / "export")),
            *(self._data or ("--data.path", str(self._example / "data" / "tasks.jsonl"))),
            *("--data.eval_size", "8", "--run.max_steps", str(_STEPS), "--run.max_staleness", "0"),
            *("--batch.groups", str(_GROUPS), "--batch.group_size", str(_SIZE)),
            *arguments,
        )

    def end_after_kills(self, word: bytes) -> None:
        """Kills the environment service, then a process that plays (its command line has `word`); the run ends well."""
        try:
            self.wait_for_step(1)
            self.kill("environment-0")
            self.wait_for_step(2)
            self.wait_until(lambda: kill_a_child(self.pid("environment-0"), word), "a process of an episode to kill")
            self.finish()
        finally:
            self.close()

    def check_episodes(self) -> None:
        """Every group was trained once, with what was sampled and with nothing that was read."""
        verdict, groups = self.check(), _STEPS * _GROUPS
        assert verdict["groups"] == {"issued": groups, "trained": groups, "dropped": {}, "open": 0}, verdict
        files = sorted((self.run_dir / "rollouts").glob("step-*.parquet"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        heard = [sum(one is None for one in row["logprobs"]) for row in rows]
        assert len(rows) == groups * _SIZE and sum(count > 0 for count in heard) > len(rows) / 2
        assert all(row["tokens"] - count == row["trained_tokens"] for row, count in zip(rows, heard, strict=True))
        assert sum(row["reward"] or 0 for row in rows) > len(rows) / 2, "the tools gave no answers"
        assert all(step["logprob_gap_max"] <= 1e-4 for step in self.metrics())
        weights = [event["weights_digest"] for event in read_events(self.run_dir) if event["event"] == "step_done"]
        assert len(set(weights)) == _STEPS, "the weights did not move at each step"
