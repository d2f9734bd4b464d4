"""A run with the example's own advantage and loss, on two ranks: copied, refused when changed, accepted when asked."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.inspect.output import BAD_INPUT, FINISHED, STOPPED
from headrace.services.trainer.durability.checkpoint import CheckpointStore
from headrace.wire.journal import IncarnationRecord, read_journal
from headrace.wire.rundir.events import read_events
from headrace.wire.rundir.own_code import algorithm_code, checked_digest
from tests.e2e.harness import DEADLINE_S, ROOT, TinyRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
EXAMPLE = ROOT / "examples" / "own_algorithm" / "algorithm"
TABLE = """
[algorithm]
path = "code"
advantage = "my_algorithm:median_baseline"
needs = ["group"]
policy_loss = "my_algorithm:smooth_clip"
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[TinyRun]:
    """A tiny run whose config names the example's functions, copied beside it."""
    made = TinyRun(tmp_path / "tiny", steps=4, replicas=1)
    shutil.copytree(EXAMPLE, made.folder / "code", ignore=shutil.ignore_patterns("__pycache__"))
    with (made.folder / "run.toml").open("a") as file:
        file.write(TABLE)
    yield made
    made.close()


def headrace(run: TinyRun, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "headrace", "train", str(run.folder / "run.toml")]
    return subprocess.run(
        [*command, "--run-dir", str(run.run_dir), *arguments],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


@pytest.mark.long
def test_user_functions_train_on_every_rank_and_a_change_must_be_accepted(run: TinyRun) -> None:
    mine = run.folder / "code" / "my_algorithm.py"
    text = mine.read_text()
    run.start("--trainer.ranks", "2", "--trainer.checkpoint-every", "2")
    run.wait_for_step(2)
    # The folder is edited under the live run, which has its copy.
    mine.write_text(text.replace("nanmedian()", "nanmean()"))
    before = checked_digest(algorithm_code(run.run_dir))
    assert run.stop() in (STOPPED, FINISHED), "the last step may come before the signal"
    refused = headrace(run, "--resume")
    assert refused.returncode == BAD_INPUT
    assert before[:12] in refused.stderr and "changed: my_algorithm.py" in refused.stderr
    assert "--accept-changed-code" in refused.stderr
    run.start("--resume", "--accept-changed-code")
    run.finish()
    run.check()
    after = checked_digest(algorithm_code(run.run_dir))
    heads = [item.record for item in read_journal(run.run_dir / "journal")]
    assert [head.code_digest for head in heads if isinstance(head, IncarnationRecord)] == [before, after]
    newest = CheckpointStore(run.run_dir / "checkpoints", keep=2).newest()
    assert newest is not None and newest.state.code_digest == after
    (event,) = (event for event in read_events(run.run_dir) if event["event"] == "code_changed")
    assert (event["before"], event["after"]) == (before, after)
    assert {step["step"] for step in run.metrics()} == {1, 2, 3, 4}
    assert any(step["grad_norm"] > 0 for step in run.metrics())


@pytest.mark.long
def test_a_dry_run_refuses_a_function_that_cannot_train(run: TinyRun) -> None:
    mine = run.folder / "code" / "my_algorithm.py"
    mine.write_text(mine.read_text().replace("-tokens.advantages * log_ratio.tanh()", "-tokens.advantages"))
    done = headrace(run, "--dry-run", "--json")
    assert done.returncode != 0
    assert "my_algorithm:smooth_clip: no gradient flows from PolicyLoss.per_token" in done.stdout + done.stderr
    assert "run.toml:" in done.stdout + done.stderr
    assert not run.run_dir.exists()
    mine.write_text(mine.read_text().replace("import torch", "import torch\nimport no_such_module"))
    done = headrace(run, "--dry-run")
    assert f"{mine}:4: No module named 'no_such_module'" in done.stderr
    mine.write_text((EXAMPLE / "my_algorithm.py").read_text())
    ready = headrace(run, "--dry-run", "--json")
    assert (run.run_dir / "algorithm" / "my_algorithm.py").is_file(), ready.stderr
    recorded = json.loads((run.run_dir / "config" / "algorithm.json").read_text())
    assert recorded["digest"] == checked_digest(algorithm_code(run.run_dir))
