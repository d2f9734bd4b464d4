"""The stages on given examples as a user starts them: killed, stopped, resumed, on several ranks."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.demo.arithmetic import exercises
from headrace.inspect.history.check import check_run
from tests.verbs import result
from tests.warm.start import Process, python, start

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
DEADLINE_S = 120

RUN_TOML = """
[run]
id = "stage"
stage = "{stage}"
[model.make]
hidden = 32
intermediate = 64
layers = 2
heads = 2
kv_heads = 1
head_dim = 16
context = 32
[data]
path = "rows.jsonl"
eval_size = 20
[{stage}]
steps = {steps}
batch_size = 16
learning_rate = 1e-3
eval_every = {steps}
[trainer]
checkpoint_every = 7
"""


class Stage:
    """A folder with a config and its data, and commands on it."""

    def __init__(self, folder: Path, stage: str, *, steps: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.run_dir = folder, folder / "run"
        (folder / "run.toml").write_text(RUN_TOML.format(stage=stage, steps=steps))
        rows = [
            {"prompt": one.prompt, "completion": one.answer, "chosen": one.answer, "rejected": one.answer[::-1] + "1"}
            for one in exercises(seed=0, held_out=8000)[0]
        ]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def start(self, *arguments: str) -> Process:
        command = python("headrace", "train", self.folder / "run.toml", "--json", "--run-dir", self.run_dir, *arguments)
        with (self.folder / "stderr.log").open("a") as log, self._stdout.open("w") as out:
            return start(command, out=out, err=log)

    @property
    def _stdout(self) -> Path:
        return self.folder / "stdout.log"

    def end(self, process: Process, *, status: int = 0) -> dict[str, Any]:
        """Waits for it; returns its JSON line."""
        ended = process.wait(DEADLINE_S)
        out = self._stdout.read_text()
        assert ended == status, out + self.logs()
        line: dict[str, Any] = json.loads(out.splitlines()[-1])
        return line

    def metrics(self) -> list[dict[str, Any]]:
        """Rows of whole lines: the file is read while it is written."""
        path = self.run_dir / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def wait_for_step(self, step: int, process: Process) -> None:
        end = time.monotonic() + DEADLINE_S
        while len(self.metrics()) < step:
            assert process.poll() is None and time.monotonic() < end, f"step {step} did not come" + self.logs()
            time.sleep(0.02)

    def trainer_pid(self) -> int:
        return int(json.loads((self.run_dir / "run" / "trainer.json").read_text())["pid"])

    def exported(self) -> str:
        path = next((self.run_dir / "events").glob("trainer-*.jsonl"))
        events = [json.loads(line) for line in path.read_text().splitlines()]
        return str([event for event in events if event["event"] == "exported"][-1]["weights_sha256"])

    def logs(self) -> str:
        paths = [self.folder / "stderr.log", *self.run_dir.glob("logs/*.log")]
        return "".join(f"\n--- {path}\n{path.read_text()[-3000:]}" for path in paths if path.exists())


def test_a_killed_and_stopped_stage_ends_with_the_weights_of_an_undisturbed_one(tmp_path: Path) -> None:
    whole, torn = (Stage(tmp_path / name, "sft", steps=150) for name in ("whole", "torn"))
    undisturbed = whole.start()
    # The trainer is killed: it is started again within the same command. Then the command itself is killed.
    process = torn.start()
    torn.wait_for_step(15, process)
    os.kill(torn.trainer_pid(), signal.SIGKILL)
    torn.wait_for_step(30, process)
    process.kill()
    process.wait(10)
    # Ctrl-C ends it with a checkpoint.
    process = torn.start("--resume")
    torn.wait_for_step(50, process)
    process.send_signal(signal.SIGINT)
    stopped = torn.end(process, status=130)
    assert 50 <= stopped["steps"] < 150
    kept = max(int(path.name[5:]) for path in (torn.run_dir / "checkpoints").glob("step-*"))
    assert kept == stopped["steps"]
    finished = torn.end(torn.start("--resume"))
    wanted = whole.end(undisturbed)
    assert (finished["steps"], finished["eval_after"]) == (wanted["steps"], wanted["eval_after"])
    assert torn.exported() == whole.exported()
    assert [row["step"] for row in torn.metrics()] == list(range(1, 151))
    assert finished["eval_after"]["loss"] < finished["eval_before"]["loss"]
    for stage, line in ((whole, wanted), (torn, finished)):
        verdict = result("check", stage.run_dir, "--receipt", line["receipt"])
        assert (verdict["stage"], verdict["steps"], verdict["problems"]) == ("sft", 150, [])
        assert verdict["notes"] == ["the receipt of step 150 covers the whole run"]
    earlier = result("check", torn.run_dir, "--receipt", stopped["receipt"])
    assert earlier["notes"] == [f"the receipt is of step {kept}, and holds; the run went on to step 150"]
    flipped = torn.run_dir / "checkpoints" / "step-000150" / "model.safetensors"
    data = flipped.read_bytes()
    flipped.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert "step 150 cannot be resumed from: model.safetensors does not match" in check_run(torn.run_dir).problems[0]


@pytest.mark.parametrize("stage", [pytest.param(stage, marks=pytest.mark.long) for stage in ("reward_model", "dpo")])
def test_two_ranks_train_as_one_does(tmp_path: Path, stage: str) -> None:
    found = []
    for ranks in (1, 2):
        one = Stage(tmp_path / str(ranks), stage, steps=6)
        line = one.end(one.start(f"--trainer.ranks={ranks}", f"--{stage}.micro-batch-tokens={200 * ranks}"))
        found.append((line["eval_after"], [row["loss"] for row in one.metrics()]))
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-4)
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-3, abs=1e-4)
