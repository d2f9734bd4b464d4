"""Does every algorithm learn? A short run of each on the demo's task, from one model, and their curves.

    python -m benchmarks.algorithms            # all; writes docs/algorithms-curves.svg and .json
    python -m benchmarks.algorithms --only grpo,ppo    # those anew; the others' curves stay

Each runs as a user runs it, `headrace train run.toml --algorithm.name NAME`, with the defaults of its recipe (one key
of one differs: `OVERRIDES`). All else is the same for all: model, sums, seed, batches, learning rate. What is compared
is accuracy on sums that no run was trained on. This shows that each of them works, not which is best: one small task,
no tuning. Needs matplotlib.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.learning import ROOT, headrace
from headrace.demo.demo import prepared_demo
from headrace.services.trainer.algorithms.recipes import recipes
from headrace.wire.rundir.evals import evals_of

RUN_TOML = """\
[run]
id = "curves"
max_steps = {steps}
max_staleness = 1

[model]
path = "model"

[data]
path = "prompts.jsonl"
eval_path = "held_out.jsonl"

[batch]
groups = 64
group_size = 4

[rollout]
replicas = 1
max_rows = 256

[rollout.sampling]
max_tokens = 5

[[reward.scorers]]
name = "exact_match"

[trainer]
# Losses that nothing clips do not stand the demo's 5e-4.
learning_rate = 2e-4
warmup_steps = 5
schedule = "linear"
checkpoint_every = 1000

[critic]
# For a model of 0.6 M parameters. Pretraining takes steps off the run: these algorithms train the policy less often.
learning_rate = 3e-4
pretrain_steps = 5

[eval]
every = 5
"""
OVERRIDES = {
    # 1 - 1 / (0.05 x 5 tokens) is below 0, so the paper's lambda would be 0 and no token but the last be told of the
    # reward: its alpha is for thousands of tokens.
    "vapo": ("--algorithm.lam-alpha", "1.0"),
}


def one(name: str, config: Path, run_dir: Path, seed: int) -> dict[str, Any]:
    """Trains with one algorithm; its accuracy by version, or the end of what it said when it failed."""
    began = time.monotonic()
    own = OVERRIDES.get(name, ())
    try:
        headrace(
            "train", str(config), "--run-dir", str(run_dir), "--algorithm.name", name, *own, "--run.seed", str(seed)
        )
    except SystemExit as failed:
        return {"name": name, "failed": str(failed)[-2000:]}
    points = [(int(row["version"]), round(float(row["accuracy"]), 4)) for row in evals_of(run_dir)]
    before, after = points[0][1], points[-1][1]
    return {
        "name": name,
        "overrides": list(own),
        "before": before,
        "after": after,
        "gain": round(after - before, 4),
        "best": max(accuracy for _, accuracy in points),
        "seconds": round(time.monotonic() - began, 1),
        "points": points,
    }


def table(result: dict[str, Any]) -> str:
    """The results in Markdown, best first."""
    lines = ["| Algorithm | before | after | gain |", "|---|---|---|---|"]
    for run in sorted(result["runs"], key=lambda run: -run.get("gain", -1.0)):
        if "failed" in run:
            lines.append(f"| `{run['name']}` | | failed | |")
        else:
            accuracies = " | ".join(f"{run[key]:.3f}" for key in ("before", "after", "gain"))
            lines.append(f"| `{run['name']}` | {accuracies} |")
    return "\n".join(lines)


def draw(result: dict[str, Any], path: Path) -> None:
    """One small panel an algorithm, the others in grey behind it."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "headrace", "font.size": 8, "svg.fonttype": "none"})
    from matplotlib import pyplot

    runs = [run for run in result["runs"] if "failed" not in run]
    columns = 5
    rows = -(-len(runs) // columns)
    figure, panels = pyplot.subplots(
        rows, columns, sharex=True, sharey=True, figsize=(11, 1.9 * rows), squeeze=False, layout="constrained"
    )
    for panel, run in zip(panels.flat, runs, strict=False):
        for other in runs:
            panel.plot(*zip(*other["points"], strict=True), color="#d0d0d0", linewidth=0.7)
        panel.plot(*zip(*run["points"], strict=True), color="#1f5fa8", linewidth=1.8)
        panel.set_title(run["name"], fontsize=9)
        panel.grid(alpha=0.3, linewidth=0.5)
    for panel in list(panels.flat)[len(runs) :]:
        panel.set_visible(False)
    figure.supxlabel("optimizer batches")
    figure.supylabel("accuracy on held-out sums")
    figure.savefig(path, metadata={"Date": None})


def joined(result: dict[str, Any], path: Path) -> dict[str, Any]:
    """With the runs in `path` that were not repeated, if all else was the same."""
    before = json.loads(path.read_text()) if path.exists() else {}
    if any(before.get(key) != result[key] for key in ("steps", "seed", "config")):
        return result
    runs = {run["name"]: run for run in (*before["runs"], *result["runs"])}
    return result | {"runs": [runs[name] for name in sorted(runs)]}


def write(result: dict[str, Any], folder: Path) -> None:
    """The plot and its numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    result = joined(result, folder / "algorithms-curves.json")
    (folder / "algorithms-curves.json").write_text(json.dumps(result, indent=1) + "\n")
    draw(result, folder / "algorithms-curves.svg")


def measure(names: list[str], *, steps: int, seed: int, folder: Path) -> dict[str, Any]:
    """Prepares once, then runs each."""
    said: list[str] = []
    with prepared_demo(folder / "prepared", ["--run.seed", str(seed)], dict(os.environ), said.append):
        pass
    config = folder / "prepared" / "demo" / "curves.toml"
    config.write_text(RUN_TOML.format(steps=steps))
    runs = []
    for name in names:
        runs.append(one(name, config, folder / name, seed))
        sys.stderr.write(json.dumps(runs[-1]) + "\n")
    return {"steps": steps, "seed": seed, "config": RUN_TOML, "runs": runs}


def main() -> None:
    """Measures and writes; exit status 1 if one of them failed or did not learn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, with commas between")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=ROOT / "docs")
    parser.add_argument("--json", action="store_true", help="the last line is the result")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [name for name in recipes() if name != "distillation"]
    with tempfile.TemporaryDirectory(prefix="headrace-algorithms-") as folder:
        result = measure(names, steps=options.steps, seed=options.seed, folder=Path(folder))
    write(result, options.output)
    print(json.dumps(result) if options.json else table(result))
    raise SystemExit(any(run.get("gain", 0.0) <= 0 for run in result["runs"]))


if __name__ == "__main__":
    main()
