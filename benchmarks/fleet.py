"""What the control plane costs with 8 replicas and with 64: CPU a rollout, by kind of process.

    python -m benchmarks.fleet --json

Real runs of `headrace train` on this machine in which only generation and training are emulated, and take no time:
128 prompts x 8 rollouts x 64 tokens a step.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil

from headrace.demo.arithmetic import CHARACTERS
from headrace.model.tiny_models import Shape, character_tokenizer, write_model
from headrace.wire.rundir.layout import RunPaths

_PROGRAM = """
import sys
import headrace.run.preload as preload
from headrace.cli.app import run
later = preload.later
preload.later = lambda: [*later(), "benchmarks.emulated"]
sys.exit(run(sys.argv[1:]))
"""
_RUN = """
[model]
path = "model"
[data]
path = "prompts.jsonl"
[rollout.sampling]
max_tokens = 3200
forced_lengths_column = "lengths"
[[reward.scorers]]
name = "length"
options = { target = 3 }
[trainer]
checkpoint_every = 100000
"""

_GROUPS, _SIZE, _TOKENS = 128, 8, 64


def write_folder(folder: Path, lengths: Iterable[Sequence[int]]) -> None:
    """A tiny model, a config, and a prompt for each group of lengths."""
    shape = Shape(hidden=8, intermediate=16, layers=1, heads=1, kv_heads=1, head_dim=8, context=3264)
    write_model(folder / "model", character_tokenizer(CHARACTERS), shape, seed=1)
    rows = [{"prompt": f"{number}+1=", "answer": "1", "lengths": [*one]} for number, one in enumerate(lengths)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "run.toml").write_text(_RUN)


def begin(folder: Path, name: str, *, tokens_s: float = 0, step_s: float = 0, **keys: Any) -> "subprocess.Popen[bytes]":
    """Starts a run with keys of the config, `section__key`."""
    options = [f for key, value in keys.items() for f in (f"--{key.replace('__', '.').replace('_', '-')}", str(value))]
    command = [sys.executable, "-P", "-c", _PROGRAM, "train", str(folder / "run.toml"), *options]
    env = os.environ | {"TOKENS_S": str(tokens_s), "STEP_S": str(step_s)}
    with (folder / f"{name}.log").open("w") as log:
        return subprocess.Popen([*command, "--run-dir", str(folder / name)], env=env, stdout=log, stderr=log)


def lines_of(run_dir: Path) -> list[dict[str, Any]]:
    """Metrics of the whole steps so far."""
    path = RunPaths(run_dir).metrics
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def spent(run_dir: Path) -> dict[str, float]:
    """CPU seconds so far, by kind of process."""
    found: dict[str, float] = defaultdict(float)
    for path in RunPaths(run_dir).processes.glob("*.json"):
        pid = json.loads(path.read_text()).get("pid")
        if isinstance(pid, int):
            found[path.stem.split("-")[0]] += sum(psutil.Process(pid).cpu_times()[:2])
    return found


def measure(replicas: int, steps: int) -> dict[str, Any]:
    """CPU milliseconds a rollout, from the second step to the last."""
    with tempfile.TemporaryDirectory(prefix="headrace-fleet-") as name:
        write_folder(folder := Path(name), [(_TOKENS,) * _SIZE] * _GROUPS)
        keys = {"run__max_staleness": 1, "batch__groups": _GROUPS, "batch__group_size": _SIZE}
        run = begin(folder, "run", run__max_steps=steps + 2, rollout__replicas=replicas, **keys)
        try:
            before = _spent_after(2, run, folder / "run")
            after = _spent_after(steps, run, folder / "run")
        finally:
            run.terminate()
            run.wait()
    share = 1000 / ((steps - 2) * _GROUPS * _SIZE)
    each = {kind: round((after[kind] - before[kind]) * share, 3) for kind in after}
    return {"replicas": replicas, "cpu_ms_a_rollout": round(sum(each.values()), 3), **each}


def _spent_after(steps: int, run: "subprocess.Popen[bytes]", run_dir: Path) -> dict[str, float]:
    while len(lines_of(run_dir)) < steps:
        if run.poll() is not None:
            raise SystemExit(run_dir.with_suffix(".log").read_text()[-3000:])
        time.sleep(0.05)
    return spent(run_dir)


def main() -> None:
    """Measures, prints, and with --json ends in one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = [measure(replicas, options.steps) for replicas in options.replicas]
    print(json.dumps(found, indent=None if options.json else 1))


if __name__ == "__main__":
    main()
