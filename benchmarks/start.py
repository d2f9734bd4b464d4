"""What a short run costs with the fork server and without: `python -m benchmarks.start [--json]`.

Four steps of a tiny model with two replicas; rounds of both, one after the other; medians of seconds and of CPU time.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.soak import prepare

ROUNDS = 3
TIMEOUT_S = 300.0
RUN_TOML = """
[run]
max_steps = 4
[model]
path = "model"
[data]
path = "prompts.jsonl"
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
"""
WITH = "import sys; from headrace.cli.app import run; sys.exit(run(sys.argv[1:]))"
WITHOUT = f"import headrace.run.preload as preload; preload.can_fork = lambda: False; {WITH}"


def measure(program: str, folder: Path, run_dir: Path) -> tuple[float, float]:
    """Seconds and seconds of CPU, of all its processes, of one run."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-P", "-c", program, "train", str(folder / "run.toml"), "--run-dir", str(run_dir)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=TIMEOUT_S, env=os.environ)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Prints one line a way, or one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, RUN_TOML)
        for number in range(ROUNDS):
            for way, program in (("without", WITHOUT), ("with", WITH)):
                found[way].append(measure(program, folder, folder / f"{way}-{number}"))
    medians = {
        way: {"seconds": median(one for one, _ in rounds), "cpu_seconds": median(one for _, one in rounds)}
        for way, rounds in found.items()
    }
    if asked.json:
        sys.stdout.write(json.dumps(medians) + "\n")
        return
    for way, one in medians.items():
        sys.stdout.write(f"{way} the fork server: {one['seconds']:.1f} s, {one['cpu_seconds']:.1f} s of CPU\n")


if __name__ == "__main__":
    main()
