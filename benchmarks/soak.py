"""Whether a run grows: memory, descriptors and threads of each process, per 1,000 steps, behind a warm-up.

    make soak                      # 5 minutes of warm-up, then 20; exit status 1 if something exceeds its bound
    python -m benchmarks.soak --minutes 2 --warm-minutes 1 --trace PROCESS

At most 1 MB of resident memory a process, no descriptor and no thread; one that exceeds it with its whole interval is
named, and so are the descriptors and threads that a process has more than behind the warm-up. What a process opens for
a moment (a checkpoint that it writes) does not count, what it keeps does. gRPC's own threads are counted apart: its
pool (work_stealing_thread_pool.cc) begins one whenever all are busy, ends one that was idle for 20 s, and has no
setting: a process has more or less of them by chance, and exceeds its bound if they grow again and again.
`--trace orchestrator` runs that process under tracemalloc, and shows which lines hold what was added since the warm-up.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.growth import Growth, drift, growth
from headrace.demo.arithmetic import CHARACTERS, exercises
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.wire.lifecycle import die_with_parent
from headrace.wire.memory_trace import VARIABLE
from headrace.wire.rundir import jsonl
from headrace.wire.rundir.layout import RunPaths

EVERY_S = 2.0
LIMITS = {"memory_mb": 1.0, "descriptors": 0.0, "threads": 0.0, "grpc_threads": 0.0}
"""Growth per 1,000 steps."""
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


class SoakRun:
    """A run of a tiny model that is sampled."""

    def __init__(self, folder: Path, trace: str) -> None:
        self._folder, self._run_dir = folder, folder / "run"
        shape = Shape(hidden=32, intermediate=64, layers=2, heads=2, kv_heads=1, head_dim=16, context=32)
        write_model(folder / "model", character_tokenizer(CHARACTERS), shape, seed=1)
        training, held_out = exercises(seed=1, held_out=16)
        for name, sums in (("prompts.jsonl", training), ("held_out.jsonl", held_out)):
            rows = [json.dumps({"prompt": one.prompt, "answer": one.answer}) for one in sums]
            (folder / name).write_text("\n".join(rows) + "\n")
        (folder / "run.toml").write_text(RUN_TOML)
        env = {**os.environ, **({VARIABLE: f"{trace}:{folder / 'trace.txt'}"} if trace else {})}
        command = [sys.executable, "-P", "-m", "headrace", "train", str(folder / "run.toml"), "--json"]
        with (folder / "stderr.log").open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--run-dir", str(self._run_dir)],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=env,
                preexec_fn=die_with_parent,
            )

    def steps(self) -> int:
        """Steps done."""
        return int(jsonl.number_of(jsonl.last(RunPaths(self._run_dir).metrics).get("step", 0)) or 0)

    def wait(self, seconds: float) -> None:
        """Waits; raises RuntimeError if the run ends meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise RuntimeError((self._folder / "stderr.log").read_text()[-2000:])
            time.sleep(min(0.5, max(0.0, end - time.monotonic())))

    def processes(self) -> dict[str, psutil.Process]:
        """The run's processes by name, the supervisor among them."""
        found = {"supervisor": psutil.Process(self._process.pid)}
        for path in RunPaths(self._run_dir).processes.glob("*.json"):
            number = json.loads(path.read_text()).get("pid")
            if isinstance(number, int) and number != self._process.pid:
                found[path.stem] = psutil.Process(number)
        return found

    def held(self) -> dict[tuple[str, str], Counter[str]]:
        """(process, kind) -> its descriptors (paths, and kinds of what has none), and its threads by name."""
        found = {}
        for name, process in self.processes().items():
            found[name, "descriptors"] = _descriptors(process.pid)
            found[name, "threads"] = _threads(process.pid)
        return found

    def sample(self, samples: Samples) -> None:
        """Adds one sample of each number of each process."""
        step = self.steps()
        for name, process in self.processes().items():
            with process.oneshot():
                samples[name, "memory_mb"].append((step, process.memory_info().rss / 1e6))
                samples[name, "descriptors"].append((step, process.num_fds()))
            threads = _threads(process.pid)
            of_grpc = threads.pop(_GRPC_THREAD, 0)
            samples[name, "threads"].append((step, threads.total()))
            samples[name, "grpc_threads"].append((step, of_grpc))

    def traced(self) -> str:
        """What the traced process holds more than at the first trace."""
        path = self._folder / "trace.txt"
        return path.read_text() if path.exists() else ""

    def close(self) -> int:
        """Ends the run as Ctrl-C does; returns its exit status."""
        self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(_START_S)
        finally:
            self._process.kill()


def _descriptors(pid: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # It has been closed.
            found[re.sub(r":\[\d+\]$", "", str(path.readlink()))] += 1
    return found


def _threads(pid: int) -> Counter[str]:
    """Those of native libraries have names of their own, Python's that of the process."""
    found: Counter[str] = Counter()
    for path in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # It has ended.
            found[(path / "comm").read_text().strip()] += 1
    return found


def soak(folder: Path, *, warm_s: float, seconds: float, trace: str = "") -> tuple[Samples, int, list[str]]:
    """The samples behind the warm-up, the exit status of `headrace check`, and lines that say what has grown."""
    samples: Samples = defaultdict(list)
    run = SoakRun(folder, trace)
    try:
        end = time.monotonic() + _START_S
        while not run.steps():
            if time.monotonic() > end:
                raise TimeoutError(f"no step within {_START_S:g} s")
            run.wait(0.5)
        run.wait(warm_s)
        before = run.held()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            run.sample(samples)
            run.wait(EVERY_S)
        new = {key: now - before.get(key, Counter()) for key, now in run.held().items()}
        grown = [f"{name} has more {kind}: {dict(more)}" for (name, kind), more in sorted(new.items()) if more]
        grown += [run.traced()] if trace else []
    finally:
        run.close()
    check = subprocess.run(
        [sys.executable, "-P", "-m", "headrace", "check", str(folder / "run")], check=False, capture_output=True
    )
    return samples, check.returncode, grown


def table(samples: Samples) -> tuple[list[str], list[str]]:
    """Lines for people, and the numbers that exceed their limits."""
    lines, exceeding = [], []
    for (name, number), values in sorted(samples.items()):
        found = _growth(number, values)
        first, last = values[0][1], values[-1][1]
        line = f"{name:15} {number:12} {first:9.1f} -> {last:9.1f}   {found.slope:+8.3f} +- {found.half_width:.3f} "
        lines.append(line + "per 1,000 steps")
        if number in ("descriptors", "threads") and found.exceeds(LIMITS[number]):
            changes = drift(values)
            again = "again and again" if changes.exceeds(LIMITS[number]) else "a few times"
            lines[-1] += f"; it changed {again} ({changes.slope:+.3f} +- {changes.half_width:.3f})"
        if found.exceeds(LIMITS[number]):
            exceeding.append(f"{name} {number}")
    return lines, exceeding


def _growth(number: str, values: list[tuple[float, float]]) -> Growth:
    """What is compared with the limit of this number."""
    match number:
        case "memory_mb":
            return growth(values)
        case "grpc_threads":
            return drift(values)
        case _:
            return growth(values, middle=min)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, and returns 1 if something exceeds its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--warm-minutes", type=float, default=5.0)
    parser.add_argument("--trace", default="", help="a service whose memory is traced, such as orchestrator")
    parser.add_argument("--samples", type=Path, help="a file for every sample, a JSON line each")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as name:
        samples, checked, grown = soak(
            Path(name), warm_s=60 * options.warm_minutes, seconds=60 * options.minutes, trace=options.trace
        )
    steps = [step for step, _ in samples["supervisor", "memory_mb"]]
    if options.samples:
        rows = [(*key, *value) for key, values in samples.items() for value in values]
        options.samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines, exceeding = table(samples)
    print(f"steps {steps[0]:g} to {steps[-1]:g} in {options.minutes:g} minutes; headrace check: {checked}")
    print(*lines, *grown, sep="\n")
    print(f"grows: {', '.join(exceeding)}" if exceeding else "nothing grows beyond its bound")
    return 1 if exceeding or checked else 0


if __name__ == "__main__":
    sys.exit(main())
