"""Whether a run grows: memory, descriptors and threads of each process, per 1,000 steps, behind a warm-up.

    make soak                      # 5 minutes of warm-up, then 20; exit status 1 if something exceeds its bound
    python -m benchmarks.soak --minutes 2 --warm-minutes 1

At most 1 MB of resident memory a process and 1,000 steps, with the whole 95% interval of the slope; no descriptor and
no thread that stays: the least of the last fifth of the samples is compared with that of the first. What a process
opens for a moment (a checkpoint that it writes) does not count. gRPC's own threads are left out: its pool
(work_stealing_thread_pool.cc) begins one whenever all are busy, ends one that was idle for 20 s, and has no setting.
"""

import argparse
import json
import math
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

from headrace.demo.arithmetic import CHARACTERS, exercises
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.wire.process.lifecycle import die_with_parent
from headrace.wire.rundir import jsonl
from headrace.wire.rundir.layout import RunPaths

EVERY_S = 2.0
MEMORY_MB = 1.0
"""Growth per 1,000 steps that is allowed."""
_START_S = 180.0
_GRPC_THREAD = "event_engine"
"""What gRPC calls the threads of its pool."""
RUN_TOML = """
[run]
id = "soak"
seed = 5
max_steps = 1000000
max_staleness = 1
[model]
path = "model"
[data]
path = "prompts.jsonl"
eval_path = "held_out.jsonl"
[batch]
groups = 4
group_size = 4
[rollout]
replicas = 2
[rollout.sampling]
max_tokens = 6
[[reward.scorers]]
name = "length"
options = { target = 3 }
[trainer]
learning_rate = 1e-4
checkpoint_every = 50
[eval]
every = 100
prompts = 8
component = "length"
correct_above = -0.5
"""
Samples = dict[tuple[str, str], list[tuple[float, float]]]
"""(process, number) -> (step, value) in order."""


def prepare(folder: Path, config: str) -> None:
    """Writes a tiny model, the prompts and the config."""
    shape = Shape(hidden=32, intermediate=64, layers=2, heads=2, kv_heads=1, head_dim=16, context=32)
    write_model(folder / "model", character_tokenizer(CHARACTERS), shape, seed=1)
    training, held_out = exercises(seed=1, held_out=16)
    for name, sums in (("prompts.jsonl", training), ("held_out.jsonl", held_out)):
        rows = [json.dumps({"prompt": one.prompt, "answer": one.answer}) for one in sums]
        (folder / name).write_text("\n".join(rows) + "\n")
    (folder / "run.toml").write_text(config)


def steps_of(run_dir: Path) -> int:
    """Steps done."""
    return int(jsonl.number_of(jsonl.last(RunPaths(run_dir).metrics).get("step", 0)) or 0)


def sample(run_dir: Path, samples: Samples) -> None:
    """Adds one sample of each number of each process of the run."""
    step = steps_of(run_dir)
    for path in RunPaths(run_dir).processes.glob("*.json"):
        pid = json.loads(path.read_text()).get("pid")
        if not isinstance(pid, int):
            continue
        process = psutil.Process(pid)
        samples[path.stem, "memory_mb"].append((step, process.memory_info().rss / 1e6))
        samples[path.stem, "descriptors"].append((step, process.num_fds()))
        samples[path.stem, "threads"].append((step, _threads(pid)))


def _threads(pid: int) -> int:
    """Threads that are not of gRPC's pool."""
    found = 0
    for path in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # It has ended.
            found += (path / "comm").read_text().strip() != _GRPC_THREAD
    return found


def soak(folder: Path, *, warm_s: float, seconds: float) -> tuple[Samples, int]:
    """The samples behind the warm-up, and the exit status of `headrace check`. Raises RuntimeError if the run ends."""
    prepare(folder, RUN_TOML)
    run_dir, samples = folder / "run", defaultdict[tuple[str, str], list[tuple[float, float]]](list)
    command = [sys.executable, "-P", "-m", "headrace"]
    with (folder / "stderr.log").open("w") as log:
        run = subprocess.Popen(
            [*command, "train", str(folder / "run.toml"), "--json", "--run-dir", str(run_dir)],
            stdout=subprocess.DEVNULL,
            stderr=log,
            preexec_fn=die_with_parent,
        )
    try:
        end = time.monotonic() + _START_S + warm_s + seconds
        begin = math.inf
        while time.monotonic() < min(end, begin + warm_s + seconds):
            if run.poll() is not None or (begin == math.inf and time.monotonic() > end - warm_s - seconds):
                raise RuntimeError(f"it ended, or has done no step:\n{(folder / 'stderr.log').read_text()[-2000:]}")
            if begin == math.inf and steps_of(run_dir):
                begin = time.monotonic()
            if time.monotonic() > begin + warm_s:
                sample(run_dir, samples)
            time.sleep(EVERY_S)
        run.send_signal(signal.SIGINT)
        run.wait(_START_S)
    finally:
        run.kill()
    return samples, subprocess.run([*command, "check", str(run_dir)], check=False, capture_output=True).returncode


def growth(values: list[tuple[float, float]]) -> tuple[float, float]:
    """Slope per 1,000 steps and half of its 95% interval, through means of twenty blocks, which hardly correlate."""
    x, y = np.array([part.mean(axis=0) for part in np.array_split(np.array(values), min(20, len(values) // 2))]).T
    (slope, _), covariance = np.polyfit(x / 1000, y, 1, cov=True)
    return float(slope), 2.1 * math.sqrt(covariance[0, 0])


def judge(number: str, values: list[tuple[float, float]]) -> tuple[str, bool]:
    """What is said of one number of a process, and whether it exceeds its bound."""
    if number == "memory_mb":
        slope, half = growth(values)
        return f"{slope:+.3f} +- {half:.3f} per 1,000 steps", slope - half > MEMORY_MB
    fifth = max(1, len(values) // 5)
    kept = min(value for _, value in values[-fifth:]) - min(value for _, value in values[:fifth])
    return f"{kept:+g} stay", kept > 0


def main() -> int:
    """Measures, prints, and returns 1 if something exceeds its bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--warm-minutes", type=float, default=5.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as name:
        samples, checked = soak(Path(name), warm_s=60 * options.warm_minutes, seconds=60 * options.minutes)
    exceeding = []
    for (name, number), values in sorted(samples.items()):
        said, exceeds = judge(number, values)
        exceeding += [f"{name} {number}"] if exceeds else []
        print(f"{name:15} {number:12} {values[0][1]:9.1f} -> {values[-1][1]:9.1f}   {said}")
    print(f"grows: {', '.join(exceeding)}" if exceeding else "nothing grows beyond its bound")
    print(f"headrace check: {checked}")
    return 1 if exceeding or checked else 0


if __name__ == "__main__":
    sys.exit(main())
