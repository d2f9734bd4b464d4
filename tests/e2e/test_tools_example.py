"""The example of an agent in small: two stages that hand the model on, a report of what was measured."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from headrace.wire.rundir.events import read_events
from tests.e2e.episodes import kill_a_child
from tests.e2e.harness import TinyRun
from tests.sglang import sglang_venv

EXAMPLE = Path(__file__).parents[2] / "examples" / "tools"
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(2400)]


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The example's folder once it has run, and what it said."""
    folder, bash = tmp_path_factory.mktemp("tools"), shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, str(EXAMPLE / "run.sh"), str(folder)],
        # At staleness 0 each sampled token is compared with the trainer's logprob of it.
        env=os.environ | {"HEADRACE": f"{sys.executable} -P -m headrace", "RL_OPTIONS": "--run.max_staleness=0"},
        capture_output=True,
        text=True,
        timeout=2300,
        check=False,
    )
    logs = "".join(f"\n--- {path}\n{path.read_text()[-2000:]}" for path in folder.glob("*/logs/*.log"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:] + logs
    return folder, done


def test_a_model_that_guesses_learns_to_ask_its_tools(
    example: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = example
    report = module("report")
    found = report.measure(folder)
    assert json.loads(done.stdout.splitlines()[-1]) == {key: round(value, 6) for key, value in found.items()}
    assert not report.failures(found) and report.failures(found | {"right_after": 0.5})
    files = sorted((folder / "rl" / "rollouts").glob("step-*.parquet"))
    last = pq.read_table(files[-1]).to_pylist()
    # Episodes of three turns: what the tools said stands between, and was neither sampled nor trained.
    heard = [sum(one is None for one in row["logprobs"]) for row in last]
    assert sum(count > 0 for count in heard) > len(last) / 2
    assert all(row["tokens"] - count == row["trained_tokens"] for row, count in zip(last, heard, strict=True))
    assert max(row["tokens"] for row in last) < 120


class ExampleRun(TinyRun):
    """Five steps of four groups of four, with the policy that the example has trained: it has learned to call."""

    def __init__(self, root: Path, name: str, environment: dict[str, object], data: Sequence[str] = ()) -> None:
        self.folder, self.process, self.data = root / name, None, data
        self.folder.mkdir()
        self.run_dir = self.folder / "run"
        text = (EXAMPLE / "run.toml").read_text()
        before, table, after = re.split(r"(?<=\[environment\]\n)(.*?)(?=\n\[)", text, maxsplit=1, flags=re.DOTALL)
        kept = [line for line in table.splitlines() if line.split(" ")[0] not in {"name", *environment}]
        given = {key: value for key, value in environment.items() if value is not None}
        lines = [*kept, *(f"{key} = {json.dumps(value)}" for key, value in given.items())]
        (self.folder / "run.toml").write_text("\n".join([before.rstrip(), *lines, after]))

    def options(self) -> list[str]:
        """What makes the example's run a small one."""
        return [
            *("--model.path", str(self.folder.parent / "rl" / "export")),
            *(self.data or ("--data.path", str(self.folder.parent / "data" / "tasks.jsonl"))),
            *("--data.eval_size", "8"),
            *("--run.max_steps", "5", "--run.max_staleness", "0", "--batch.groups", "4", "--batch.group_size", "4"),
        ]

    def is_in_order(self) -> None:
        """Every group trained once, with what was sampled and with nothing that was read."""
        verdict = self.check()
        assert verdict["groups"] == {"issued": 20, "trained": 20, "dropped": {}, "open": 0}, verdict
        files = sorted((self.run_dir / "rollouts").glob("step-*.parquet"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        heard = [sum(one is None for one in row["logprobs"]) for row in rows]
        assert len(rows) == 80 and sum(count > 0 for count in heard) > 40
        assert all(row["tokens"] - count == row["trained_tokens"] for row, count in zip(rows, heard, strict=True))
        assert sum(row["reward"] or 0 for row in rows) > 40, "the tools gave no answers"
        assert all(step["logprob_gap_max"] <= 1e-4 for step in self.metrics())
        weights = [event["weights_digest"] for event in read_events(self.run_dir) if event["event"] == "step_done"]
        assert len(set(weights)) == 5, "the weights did not move at each step"


FORMS = {
    "trl": (
        {"name": "trl:stock:Stock", "path": str(EXAMPLE / "trl"), "rewards": ["stock:right"]},
        b"headrace.services.environment.child.main",
    ),
    "program": (
        {
            "command": ["python", "agent.py"],
            "reward_command": ["python", "grade.py"],
            "path": str(EXAMPLE / "program"),
            "max_turn_tokens": 48,
        },
        b"agent.py",
    ),
    "verifiers": ({"path": None, "slots": 4}, b"headrace.services.environment.taskset.host"),
}
"""The same task in the forms of others: the table `[environment]`, and a word of the command line of what plays."""
DATA = {
    "verifiers": ("--data.path", "", "--data.environment", str(EXAMPLE / "verifiers" / "stock"), "--data.limit", "60"),
}
"""Rows that are not those of the example's file."""


@pytest.mark.parametrize("form", FORMS)
def test_the_same_task_in_the_form_of_others_is_trained_under_kills(
    example: tuple[Path, subprocess.CompletedProcess[str]], form: str
) -> None:
    table, word = FORMS[form]
    run = ExampleRun(example[0], form, table, DATA.get(form, ()))
    try:
        run.start(*run.options())
        run.wait_for_step(1)
        run.kill("environment-0")
        run.wait_for_step(2)
        run.wait_until(lambda: kill_a_child(run.pid("environment-0"), word), "a process of an episode to be killed")
        run.finish()
    finally:
        run.close()
    run.is_in_order()


@pytest.mark.sglang
def test_two_sglang_servers_sample_the_turns_between_the_tools(
    example: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    run = ExampleRun(example[0], "sglang", {"name": "stock:Stock", "path": str(EXAMPLE / "stock")})
    engine = ("--rollout.engine", "sglang", "--rollout.sglang.venv", str(sglang_venv()), "--model.dtype", "float32")
    try:
        run.start(*run.options(), *engine, "--rollout.replicas", "2")
        run.wait_until(lambda: run.steps() >= 5, "the last step", 800)
        line = run.finish()
    finally:
        run.close()
    run.is_in_order()
    assert set(line["versions_committed"]) == {"rollout-0", "rollout-1"}
