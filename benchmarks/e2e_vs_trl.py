"""The whole system against TRL on two CPU cores: trained completion tokens a second, and the loss of one fixed batch.

    python -m benchmarks.e2e_vs_trl --json

Both sides train the same 4.2 M Qwen3 on the same prompts with the same forced completion lengths (mean 65, at most
512; sigma 0: all equal, sigma 1: lognormal), 64 rollouts a step, float32, AdamW. TRL has the machine to itself with
two torch threads and runs in an environment of its own (`.venv-trl`, made here from constraints.txt); both of its
ways to generate are measured and the better one counts. Headrace runs as its users run it: orchestrator, one replica,
reward, trainer and Valkey as processes, one torch thread each, at each staleness. Rounds are interleaved; the first
step of each side is left out of the rate as warm-up. CPU seconds are of whole runs, with the start of every process.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import workload

ROOT = Path(__file__).parents[1]
PEER_ENVIRONMENT = ROOT / ".venv-trl"
PEER = "trl==1.16.0"
SEED = 0

RUN_TOML = """
[run]
id = "bench"
seed = {seed}
max_steps = {steps}
max_staleness = {staleness}
[model]
path = "model"
[data]
path = "rows.jsonl"
chat_template = "never"
[batch]
groups = {groups}
group_size = {group_size}
[algorithm]
clip_high = 0.2
aggregation = "seq-mean-token-mean"
[rollout]
replicas = 1
[rollout.sampling]
max_tokens = {max_tokens}
forced_lengths_column = "forced_lengths"
[reward]
path = "{root}"
[[reward.scorers]]
name = "benchmarks.workload:score"
[trainer]
learning_rate = {learning_rate}
checkpoint_every = 1000
"""


def peer_python() -> Path:
    """The interpreter of TRL's environment, made if it is not whole; torch first, which alone decides on CUDA."""
    python, ready = PEER_ENVIRONMENT / "bin" / "python", PEER_ENVIRONMENT / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", PEER_ENVIRONMENT], check=True)
        for package in ("torch", PEER):
            install = [python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", package]
            subprocess.run(install, check=True)
        ready.touch()
    return python


def run_peer(folder: Path, mode: str, steps: int) -> Any:
    """One run of TRL; returns what it wrote."""
    out = folder / f"trl-{mode}.json"
    command = [peer_python(), ROOT / "benchmarks" / "trl_peer.py", mode, folder / "model", folder / "rows.jsonl"]
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONWARNINGS": "ignore"}
    with (folder / "trl.log").open("a") as log:
        subprocess.run([*command, str(steps), str(SEED), out], check=True, env=environment, stdout=log, stderr=log)
    return json.loads(out.read_text())


def run_headrace(folder: Path, name: str, steps: int, staleness: int) -> list[dict[str, float]]:
    """One run of the whole system; returns its `metrics.jsonl`."""
    config = folder / "run.toml"
    config.write_text(
        RUN_TOML.format(
            seed=SEED,
            steps=steps,
            staleness=staleness,
            groups=workload.GROUPS,
            group_size=workload.GROUP_SIZE,
            max_tokens=workload.MAX_TOKENS,
            learning_rate=workload.LEARNING_RATE,
            root=ROOT,
        )
    )
    run_dir = folder / name
    command = [sys.executable, "-m", "headrace", "train", str(config), "--run-dir", str(run_dir), "--json"]
    with (folder / "headrace.log").open("a") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log, cwd=ROOT)
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def rate(steps: list[tuple[float, float]]) -> float:
    """Tokens a second between the end of the first step and the end of the last; (time, tokens) a step."""
    return sum(tokens for _, tokens in steps[1:]) / (steps[-1][0] - steps[0][0])


def run_one(folder: Path, name: str, number: int, steps: int) -> dict[str, float]:
    """One run of either side: tokens a second, and CPU seconds a thousand trained tokens."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if name.startswith("trl"):
        lines = run_peer(folder, name.removeprefix("trl-"), steps)["steps"]
        pairs = [(step["t"], step["tokens"]) for step in lines]
    else:
        lines = run_headrace(folder, f"run-{name}-{number}", steps, int(name[-1]))
        pairs = [(line["t"], line["completion_tokens"]) for line in lines]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"tokens_per_second": rate(pairs), "cpu_s_per_1000_tokens": 1000 * cpu / sum(tokens for _, tokens in pairs)}


def measure(folder: Path, options: argparse.Namespace, sigma: float) -> dict[str, Any]:
    """Interleaved rounds at one sigma: medians of both sides, and how many times TRL's better rate Headrace reaches."""
    workload.write_rows(folder / "rows.jsonl", 64, SEED, sigma)
    names = [f"trl-{mode}" for mode in ("generate", "batching")]
    names += [f"headrace-s{staleness}" for staleness in options.staleness]
    readings: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number in range(options.rounds):
        for name in names:
            readings[name].append(run_one(folder, name, number, options.steps))
            sys.stderr.write(f"sigma {sigma:g}, round {number + 1}, {name}: {json.dumps(readings[name][-1])}\n")
    medians = {
        name: {key: round(statistics.median(one[key] for one in seen), 2) for key in seen[0]}
        for name, seen in readings.items()
    }
    best = max(medians[name]["tokens_per_second"] for name in names[:2])
    return {name: found | {"times_trl": round(found["tokens_per_second"] / best, 2)} for name, found in medians.items()}


def compare_losses(folder: Path) -> dict[str, float]:
    """The GRPO loss of one fixed batch by both, from the same weights, logprobs and advantages."""
    from benchmarks.fixed_batch import headrace_loss

    ours = headrace_loss(folder / "model", folder / "rows.npz")
    peers = float(run_peer(folder, "loss", 1)["loss"])
    return {"loss": ours, "loss_trl": peers, "loss_difference": abs(ours - peers)}


def main() -> None:
    """Measures, prints, and with --json ends in one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--sigma", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result: dict[str, Any]
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        workload.make_model(folder / "model")
        workload.write_rows(folder / "rows.jsonl", 64, SEED, 1.0)
        result = compare_losses(folder)
        for sigma in options.sigma:
            (folder / f"{sigma:g}").mkdir()
            os.symlink(folder / "model", folder / f"{sigma:g}" / "model")
            result[f"sigma {sigma:g}"] = measure(folder / f"{sigma:g}", options, sigma)
    result |= {"steps": options.steps, "rounds": options.rounds}
    print(json.dumps(result, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
