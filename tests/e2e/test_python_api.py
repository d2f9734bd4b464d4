"""The examples of the Python API as they stand: a script that is interrupted, and a notebook's cells in order."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Run, load_run, train
from headrace.api.run import RunFailedError
from headrace.operate.client import is_alive
from headrace.wire.errors import ConfigError, DataError, WaitTimeoutError
from tests.e2e.harness import DEADLINE_S, ROOT
from tests.verbs import result, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
EXAMPLES = ROOT / "examples" / "python"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory; a run that is alive in it at the end of a test is stopped."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for folder in tmp_path.glob("runs/*"):
        if is_alive(folder):
            load_run(folder).stop(DEADLINE_S)


def wait_for_step(run_dir: Path, step: int) -> Run:
    """The run once it has done so many steps."""
    end = time.monotonic() + DEADLINE_S
    while not (run_dir / "metrics.jsonl").exists() or (found := load_run(run_dir)).metrics.index.max() < step:
        assert time.monotonic() < end, f"{run_dir} has not come to step {step}"
        time.sleep(0.2)
    return found


def test_an_interrupt_stops_the_script_and_its_run_which_python_looks_at_and_continues(here: Path) -> None:
    # More steps than the script's own, so that it is alive when it is interrupted.
    environment = os.environ | {"HEADRACE_RUN__MAX_STEPS": "100000"}
    command = [sys.executable, str(EXAMPLES / "grpo.py")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as one:
        run = wait_for_step(here / "runs" / "grpo", 1)
        assert run.status == "running" and "step" in repr(run)
        assert isinstance(run.generate("12+12=", max_tokens=8), str)
        with pytest.raises(WaitTimeoutError):
            run.wait(timeout=0.5)
        one.send_signal(signal.SIGINT)
        printed, _ = one.communicate(timeout=DEADLINE_S)
    assert "KeyboardInterrupt" in printed and "stopped after" in printed and "config: " in printed, printed
    assert run.status == "stopped"
    done = run.metrics.index.max()

    continued = train(resume=True, run_dir=run.dir, settings={"run.max_steps": 100_000}, wait=False)
    assert continued.status in ("starting", "running")
    wait_for_step(run.dir, done + 1)
    assert run.stop(DEADLINE_S).status == "stopped", "by the orchestrator: another process has started it"
    assert continued.wait(DEADLINE_S).status == "stopped"
    assert result("check", run.dir)["ok"]


def run_cells(notebook: Path) -> dict[str, Any]:
    """Executes the code cells in order, as a kernel does; returns its names, with the cells' last values in `shown`."""
    names: dict[str, Any] = {"shown": []}
    for cell in json.loads(notebook.read_text())["cells"]:
        text = "".join(cell["source"])
        if text.startswith("%%writefile "):
            first, _, rest = text.partition("\n")
            Path(first.split()[1]).write_text(rest)
        elif cell["cell_type"] == "code":
            head, _, last = text.rpartition("\n") if text.startswith("run.") else (text, "", "None")
            exec(head, names)
            names["shown"].append(eval(last, names))
    return names


def test_the_notebook_trains_and_shows_the_run_and_a_refusal_and_a_failure_are_errors(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # As ipykernel does.
    shutil.copy(EXAMPLES / "grpo.ipynb", here)
    names = run_cells(here / "grpo.ipynb")
    run, (_, picture, table, answer) = names["run"], names["shown"]
    printed = capsys.readouterr().out
    assert "\nstep 8/8  reward 0." in printed and "\x1b" not in printed
    assert run.status == "finished" and run.dir == here / "runs" / "grpo-notebook"
    metrics = run.metrics
    assert list(metrics.index) == list(range(1, 9)) and metrics["reward_mean"].between(0, 1).all()
    assert run.evals.index.name == "step"
    trained = run.rollouts()
    assert set(trained["step"]) == {8} and trained["reward"].mean() == pytest.approx(metrics["reward_mean"][8])
    assert picture._repr_png_().startswith(b"\x89PNG") and len(table) == 5 and len(answer) <= 8
    with pytest.raises(DataError, match="step-000009"):
        run.rollouts(9)
    assert run.wait() is run and run.stop() is run

    with pytest.raises(ConfigError, match=r"^.* already holds a run: continue it with --resume"):
        train("grpo-notebook.toml")
    (here / "rewards.py").write_text("def brief(completions, **columns):\n    return 1 / 0\n")
    with pytest.raises(RunFailedError, match=r"ZeroDivisionError(.|\n)*rewards.py"):
        train("grpo-notebook.toml", {"run.max_steps": 20}, resume=True)


def test_a_script_whose_call_the_reward_service_would_repeat_is_told_where_to_put_it(here: Path) -> None:
    (here / "script.py").write_text("from headrace import train\ndef one(**_): return [1.0]\ntrain('run.toml')\n")
    (here / "in.jsonl").write_text('{"prompt": "1", "completion": "1"}\n')
    complaint = said("score", "--reward", "trl:script:one", "--input", "in.jsonl", "--output", "out.jsonl", status=2)
    assert "below `if __name__" in complaint
