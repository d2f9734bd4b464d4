"""The whole system against TRL on two CPU cores: trained completion tokens a second, and the loss of one fixed batch.

    python -m benchmarks.e2e_vs_trl --json

Both sides train the same 4.2 M Qwen3 on the same prompts with the same forced completion lengths (lognormal, mean 65,
at most 512), 64 rollouts a step, float32, AdamW. TRL has the machine to itself with two torch threads and runs in an
environment of its own (`.venv-trl`, made here); both of its ways to generate are measured and the better one counts.
Headrace runs as its users run it: orchestrator, one replica, reward, trainer and Valkey as processes, one torch thread
each, `max_staleness = 1`. Rounds are interleaved; the first step of each side is left out as warm-up.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import workload

ROOT = Path(__file__).parents[1]
PEER_ENVIRONMENT = ROOT / ".venv-trl"
PEER_PACKAGES = ("trl==1.16.0", "transformers==5.23.0", "datasets==5.2.0", "accelerate==1.15.0")
TORCH = "torch==2.13.0"
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
    """The interpreter of TRL's environment, made if it is not there."""
    python = PEER_ENVIRONMENT / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", PEER_ENVIRONMENT], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", TORCH], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", TORCH, *PEER_PACKAGES], check=True)
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


def measure(folder: Path, rounds: int, steps: int, staleness: int) -> dict[str, Any]:
    """Interleaved rounds; medians and all single readings."""
    readings: dict[str, list[float]] = {"generate": [], "batching": [], "headrace": []}
    for number in range(rounds):
        for mode in ("generate", "batching"):
            seen = run_peer(folder, mode, steps)
            readings[mode].append(rate([(step["t"], step["tokens"]) for step in seen["steps"]]))
        lines = run_headrace(folder, f"run-{number}", steps, staleness)
        readings["headrace"].append(rate([(line["t"], line["completion_tokens"]) for line in lines]))
        sys.stderr.write(f"round {number + 1}: {json.dumps({k: round(v[-1]) for k, v in readings.items()})}\n")
    medians = {name: statistics.median(values) for name, values in readings.items()}
    best = max(medians["generate"], medians["batching"])
    return {
        "ratio": round(medians["headrace"] / best, 2),
        "tokens_per_second": {name: round(value, 1) for name, value in medians.items()},
        "readings": {name: [round(value, 1) for value in values] for name, values in readings.items()},
    }


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
    parser.add_argument("--staleness", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        workload.make_model(folder / "model")
        workload.write_rows(folder / "rows.jsonl", 64, SEED)
        result = compare_losses(folder)
        result |= measure(folder, options.rounds, options.steps, options.staleness)
    result |= {"steps": options.steps, "rounds": options.rounds, "staleness": options.staleness}
    print(json.dumps(result, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
