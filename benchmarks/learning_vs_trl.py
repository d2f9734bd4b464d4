"""Does a rollout teach as much as in TRL? The demo's task, trained by both from one model on the same prompts.

    python -m benchmarks.learning_vs_trl --json          # 3 seeds, 3 to 6 minutes each on two cores

For each seed the demo's model and sums are made once. Then `headrace train` (GRPO, `max_staleness` 0 and 1) and TRL's
GRPOTrainer (in `.venv-trl`, made here) train it for the same steps: same prompts in the same order, rollouts a prompt,
exact-match reward, learning rate of each step, AdamW, gradient clip, loss, epsilon under the standard deviation (TRL's
1e-4 for both), float32. Only the random numbers of the sampling differ, so runs differ as two seeds do: differences
are given with their standard error over the seeds, paired, and one within it says nothing.

Accuracy is greedy exact match. The curve is on the 256 held-out sums: Headrace's own evaluations, a callback in TRL.
What decides comes from one function for the final models of both sides (`trl_learner.greedy_accuracy`): `gain` is on
the held-out sums, `gain_unseen` on all sums that no rollout of these runs was about (5540, less noise).

Last, TRL trains on the very rollouts that Headrace sampled at staleness 0 (`replay`): with no randomness left, gradient
norms and weights must be the same, which shows that both learn the same from a rollout.

Exit status 1 if Headrace's mean gain at staleness 0 is below TRL's; nothing is taken off for noise.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from benchmarks.e2e_vs_trl import peer_python
from benchmarks.learning import ROOT, headrace
from headrace.demo.demo import prepared_demo
from headrace.inspect.history.record import batches_by_step, read_history
from headrace.services.orchestrator.issuing.prompts import PromptOrder
from headrace.wire.contracts import RolloutGroup, ScoredGroup, decode
from headrace.wire.journal import read_payload
from headrace.wire.rundir.evals import evals_of
from headrace.wire.rundir.metrics import steps_of

STEPS, GROUPS, GROUP_SIZE, EVAL_EVERY = 40, 64, 4, 5
CLIP = 0.2
SCHEDULE = {"max_steps": STEPS, "warmup_steps": 5, "schedule": "linear"}
SIDES = ("headrace", "headrace-stale", "trl")
RUN_TOML = f"""\
[run]
id = "versus"
max_steps = {STEPS}

[model]
path = "model"

[data]
path = "prompts.jsonl"
eval_path = "held_out.jsonl"

[batch]
groups = {GROUPS}
group_size = {GROUP_SIZE}

[algorithm]
name = "grpo"
clip_low = {CLIP}
clip_high = {CLIP}
std_eps = 1e-4
aggregation = "seq-mean-token-mean"

[rollout]
replicas = 1
max_rows = 256

[rollout.sampling]
max_tokens = 5

[[reward.scorers]]
name = "exact_match"

[trainer]
warmup_steps = {SCHEDULE["warmup_steps"]}
schedule = "{SCHEDULE["schedule"]}"
checkpoint_every = 1000

[eval]
every = {EVAL_EVERY}
"""


def prepare(folder: Path, seed: int) -> Path:
    """The demo's model and sums, once for all sides; `rows.jsonl` are the prompts in their order of training."""
    said: list[str] = []
    with prepared_demo(folder / "prepared", ["--run.seed", str(seed)], dict(os.environ), said.append):
        pass
    demo = folder / "prepared" / "demo"
    (demo / "versus.toml").write_text(RUN_TOML)
    lines = (demo / "prompts.jsonl").read_text().splitlines(keepends=True)
    order = PromptOrder(len(lines), seed)
    drawn = [order.row(group) for group in range(STEPS * GROUPS)]
    (demo / "rows.jsonl").write_text("".join(lines[row] for row in drawn))
    unseen = [line for row, line in enumerate(lines) if row not in set(drawn)]
    (demo / "unseen.jsonl").write_text((demo / "held_out.jsonl").read_text() + "".join(unseen))
    return demo


def train_headrace(demo: Path, run_dir: Path, *, seed: int, rate: float, staleness: int) -> dict[str, Any]:
    """One run as a user runs it; its curve, and the mean reward and the gradient norm of each step."""
    given = {"run.seed": seed, "run.max_staleness": staleness, "trainer.learning_rate": rate}
    options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
    headrace("train", str(demo / "versus.toml"), "--run-dir", str(run_dir), *options)
    steps = [row for _, row in sorted(steps_of(run_dir).items())]
    return {
        "points": [(int(row["version"]), float(row["accuracy"])) for row in evals_of(run_dir)],
        "rewards": [row["reward_mean"] for row in steps],
        "norms": [row["grad_norm"] for row in steps],
        "rates": [row["learning_rate"] for row in steps],
    }


def call_peer(log: Path, *arguments: str | Path) -> None:
    """Runs a command of `trl_learner` in TRL's environment."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONWARNINGS": "ignore"}
    command = [peer_python(), ROOT / "benchmarks" / "trl_learner.py", *arguments]
    with log.open("a") as out:
        if subprocess.run(command, env=environment, stdout=out, stderr=out, check=False).returncode:
            raise SystemExit(f"{' '.join(map(str, command))} failed:\n{log.read_text()[-3000:]}")


def train_trl(demo: Path, out: Path, *, seed: int, rate: float, given: list[list[int]]) -> dict[str, Any]:
    """One run of TRL, on completions of its own or on given ones; what `train_headrace` returns, and `prompt_ids`."""
    out.mkdir()
    spec = {
        **SCHEDULE,
        "model": str(demo / "model"),
        "rows": str(demo / "rows.jsonl"),
        "held_out": str(demo / "held_out.jsonl"),
        "groups": GROUPS,
        "group_size": GROUP_SIZE,
        "clip": CLIP,
        "learning_rate": rate,
        "eval_every": EVAL_EVERY,
        "seed": seed,
        "given": given,
    }
    (out / "spec.json").write_text(json.dumps(spec))
    call_peer(out / "log", "train", out / "spec.json", out)
    found = json.loads((out / "result.json").read_text())
    logged = found.pop("logged")
    return {**found, "rewards": [row["reward"] for row in logged], "norms": [row["grad_norm"] for row in logged]}


def trained_groups(run_dir: Path) -> Iterator[dict[str, RolloutGroup]]:
    """Reads the trained groups of each step from the journal: prompt -> its rollouts."""
    for _, batch in batches_by_step(read_history(run_dir)):
        bodies = [decode(data).body for data in read_payload(run_dir / "journal", batch.record)]
        yield {body.group.prompt.text: body.group for body in bodies if isinstance(body, ScoredGroup)}


def in_order(demo: Path, run_dir: Path) -> tuple[list[list[int]], list[list[int]]]:
    """(prompt ids, completion ids) of each rollout of a run, in TRL's order. Ends if other prompts were trained."""
    prompts = [json.loads(line)["prompt"] for line in (demo / "rows.jsonl").read_text().splitlines()]
    said, made = [], []
    for step, groups in enumerate(trained_groups(run_dir)):
        wanted = prompts[step * GROUPS : (step + 1) * GROUPS]
        if set(groups) != set(wanted):
            raise SystemExit(f"step {step + 1} of {run_dir} trained other prompts than were meant")
        for group in (groups[prompt] for prompt in wanted):
            said += [group.prompt.token_ids.tolist()] * len(group.rollouts)
            made += [rollout.token_ids.tolist() for rollout in group.rollouts]
    return said, made


def compare_updates(ours: dict[str, Any], replay: dict[str, Any], folder: Path, demo: Path) -> dict[str, float]:
    """How far apart Headrace and TRL on Headrace's rollouts are: largest difference of norms, rewards, weights."""
    norms = (abs(a - b) / a for a, b in zip(ours["norms"], replay["norms"], strict=True))
    rewards = (abs(a - b) for a, b in zip(ours["rewards"], replay["rewards"], strict=True))
    folders = (demo / "model", folder / "headrace" / "export", folder / "replay" / "model")
    start, a, b = (load_file(path / "model.safetensors") for path in folders)
    moved = math.sqrt(sum(float(np.square(a[name] - start[name]).sum()) for name in a))
    apart = math.sqrt(sum(float(np.square(a[name] - b[name]).sum()) for name in a))
    return {"grad_norm": max(norms), "reward": max(rewards), "weights": apart / moved}


def accuracies(folder: Path, rows: Path, models: list[Path]) -> list[float]:
    """Greedy accuracy of each model folder, all by the same function."""
    out = folder / f"{rows.stem}.json"
    call_peer(folder / "evaluate.log", "evaluate", out, rows, *models)
    found: list[float] = json.loads(out.read_text())
    return found


def same_settings(runs: dict[str, dict[str, Any]], said: list[list[int]]) -> None:
    """Ends if prompts were tokenized differently, or learning rates differ in any step."""
    if runs["trl"]["prompt_ids"] != said:
        raise SystemExit("TRL tokenized the prompts to other ids")
    for name in SIDES:
        if not np.allclose(runs[name]["rates"], runs["trl"]["rates"], rtol=1e-9):
            raise SystemExit(f"learning rates differ: {runs[name]['rates']} and {runs['trl']['rates']}")


def one_seed(folder: Path, seed: int, rate: float) -> dict[str, Any]:
    """All sides, one after the other, and the replay."""
    demo = prepare(folder, seed)
    runs = {
        name: train_headrace(demo, folder / name, seed=seed, rate=rate, staleness=staleness)
        for staleness, name in enumerate(SIDES[:2])
    }
    runs["trl"] = train_trl(demo, folder / "trl", seed=seed, rate=rate, given=[])
    said, made = in_order(demo, folder / "headrace")
    same_settings(runs, said)
    replay = train_trl(demo, folder / "replay", seed=seed, rate=rate, given=made)
    models = [demo / "model", *(folder / name / "export" for name in SIDES[:2]), folder / "trl" / "model"]
    held_out = accuracies(folder, demo / "held_out.jsonl", models)
    unseen = accuracies(folder, demo / "unseen.jsonl", models)
    sides = {}
    for number, name in enumerate(SIDES, start=1):
        points = runs[name]["points"]
        sides[name] = {
            "after": held_out[number],
            "gain": held_out[number] - held_out[0],
            "gain_unseen": unseen[number] - unseen[0],
            "curve_mean": statistics.mean(accuracy for version, accuracy in points if version),
            "reward_mean": statistics.mean(runs[name]["rewards"]),
            "points": points,
            "evaluators_apart": max(abs(points[0][1] - held_out[0]), abs(points[-1][1] - held_out[number])),
        }
    result = {"seed": seed, "before": held_out[0], "before_unseen": unseen[0], "sides": sides}
    return result | {"replay": compare_updates(runs["headrace"], replay, folder, demo)}


def differences(runs: list[dict[str, Any]], name: str) -> dict[str, dict[str, float]]:
    """For each measure: mean over the seeds of `name` minus TRL, with its standard error (0 for one seed)."""
    found = {}
    for key in ("gain", "gain_unseen", "curve_mean", "reward_mean"):
        values = [run["sides"][name][key] - run["sides"]["trl"][key] for run in runs]
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
        found[key] = {"mean": round(statistics.mean(values), 4), "error": round(error, 4)}
    return found


def main() -> None:
    """Measures, prints, and with --json ends in one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--learning-rate", type=float, default=2e-4, help="peak, of both sides")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        with tempfile.TemporaryDirectory(prefix="headrace-versus-") as name:
            runs.append(one_seed(Path(name), seed, options.learning_rate))
        sys.stderr.write(json.dumps(runs[-1]) + "\n")
    result = {
        "minus_trl": {name: differences(runs, name) for name in SIDES[:2]},
        "replay": {key: max(run["replay"][key] for run in runs) for key in runs[0]["replay"]},
        "rollouts": STEPS * GROUPS * GROUP_SIZE,
        "learning_rate": options.learning_rate,
        "runs": runs,
    }
    print(json.dumps(result, indent=None if options.json else 2))
    raise SystemExit(result["minus_trl"]["headrace"]["gain"]["mean"] < 0)


if __name__ == "__main__":
    main()
