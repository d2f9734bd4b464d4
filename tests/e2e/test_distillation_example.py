"""The example of distillation as it stands: a demo that makes the teacher, a student that comes near it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(2400)]
EXAMPLE = Path(__file__).parents[2] / "examples" / "distillation"


def test_a_student_comes_near_the_teacher_and_what_it_knows(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, str(EXAMPLE / "run.sh"), str(tmp_path)],
        # At staleness 0 each sampled token is compared with the trainer's logprob of it.
        env=os.environ | {"HEADRACE": f"{sys.executable} -P -m headrace", "DISTILL_OPTIONS": "--run.max_staleness=0"},
        capture_output=True,
        text=True,
        timeout=2300,
        check=False,
    )
    logs = "".join(f"\n--- {path}\n{path.read_text()[-2000:]}" for path in tmp_path.glob("*/logs/*.log"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:] + logs
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kl_after"] < found["kl_before"] / 5 and found["agreement_after"] > found["agreement_before"]
    assert found["accuracy_after"] > found["accuracy_before"] + 0.1
    steps = [json.loads(line) for line in (tmp_path / "distillation" / "metrics.jsonl").read_text().splitlines()]
    assert all(step["reward_mean"] == pytest.approx(step["rewards/turns/mean"]) for step in steps)
    assert max(step["logprob_gap_max"] for step in steps) < 1e-3
