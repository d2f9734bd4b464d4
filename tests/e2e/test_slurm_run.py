"""A run on two nodes of a real Slurm, by the batch script of `examples/slurm`."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, TinyRun
from tests.slurm import Slurm, cluster
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]
DEADLINE_S = 300
# As in a test's own process: idle threads of two tasks on two cores.
QUIET = {"OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def submit(slurm: Slurm, tiny: TinyRun, *arguments: str) -> tuple[str, Path]:
    """The id of a job of the batch script, and its log."""
    script, log = ROOT / "examples" / "slurm" / "headrace.sbatch", tiny.folder / "job.log"
    slurm.environment |= QUIET
    # Without GPUs, and two nodes that are one machine's.
    options = ("--parsable", "--gpus-per-node=0", f"--output={log}", "--chdir", tiny.folder)
    job = slurm.run("sbatch", *options, script, "run.toml", "run", "--trainer.ranks=2", *arguments)
    return job, log


def task(folder: Path, node: int) -> int:
    """The pid of a task's `headrace`, which works in `folder`."""
    pids = map(int, filter(str.isdecimal, os.listdir("/proc")))
    (found,) = [pid for pid in pids if _is_task(Path(f"/proc/{pid}"), folder, node)]
    return found


def _is_task(process: Path, folder: Path, node: int) -> bool:
    try:
        words, variables = ((process / name).read_bytes().split(b"\0") for name in ("cmdline", "environ"))
        # `srun` itself has no node, and the services see no step.
        of_step = {f"SLURM_NODEID={node}".encode(), b"SLURM_STEP_NODELIST=127.0.0.[1-2]"} <= set(variables)
        return of_step and b"train" in words and (process / "cwd").samefile(folder)
    except OSError:
        return False


def test_a_killed_task_ends_the_step_and_the_requeued_job_resumes_and_finishes(tmp_path: Path) -> None:
    tiny = TinyRun(tmp_path / "tiny", steps=30, replicas=1)
    with cluster(tmp_path / "slurm") as slurm:
        job, log = submit(slurm, tiny)
        until(lambda: tiny.steps() >= 2, "two nodes to train", DEADLINE_S)
        os.kill(task(tiny.folder, 1), signal.SIGKILL)
        until(lambda: slurm.field(job, "JobState") == "COMPLETED", "the job to end", DEADLINE_S)
        assert (slurm.field(job, "Restarts"), slurm.field(job, "ExitCode")) == ("1", "0:0"), log.read_text()
        said = log.read_text()
        assert "task 1: Killed" in said and "trainer-node-1 finished" in said
        # A refusal is an end: the job is not requeued, and its status is machine 0's.
        job, log = submit(slurm, tiny, "--run.seed=6")
        until(lambda: slurm.field(job, "JobState") == "FAILED", "the refused job to end", DEADLINE_S)
        assert (slurm.field(job, "Restarts"), slurm.field(job, "ExitCode")) == ("0", "2:0"), log.read_text()
    assert tiny.check()["steps"] == 30
