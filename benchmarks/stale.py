"""What each `run.stale` costs and keeps at `max_staleness = 1`, side by side over several seeds.

    python -m benchmarks.stale --json

For each seed the demo makes its supervised model once. From it the demo's own run is trained with each policy in turn;
`skewed` measures throughput and lengths alone: answers of lognormal length, as `headrace.demo` models never give; and
`equal_time` is the demo's learning where time is that of `benchmarks.overlap`: see `benchmarks.equal_time`. The
policies of a seed run one after another, in an order that rotates with the seed.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.equal_time import learned
from benchmarks.learning import headrace
from benchmarks.overlap import POLICIES
from headrace.demo.arithmetic import CHARACTERS
from headrace.model.tiny_models import Shape, character_tokenizer, write_model

KINDS = ("skewed", "equal_time", "demo")
_LENGTHS = ("trained_length_mean", "arrived_length_mean", "trained_length_max", "arrived_length_max")
_CAP, _MEDIAN, _SIZE, _GROUPS, _STEPS = 320, 24 / 1.65, 4, 4, 40
_SKEWED = f"""
[run]
id = "skewed"
max_steps = {_STEPS}
[model]
path = "model"
[data]
path = "prompts.jsonl"
[batch]
groups = {_GROUPS}
group_size = {_SIZE}
[rollout]
replicas = 2
[rollout.sampling]
max_tokens = {_CAP}
forced_lengths_column = "lengths"
[[reward.scorers]]
name = "length"
options = {{ target = 3 }}
"""


def skewed_folder(folder: Path, seed: int, sigma: float) -> Path:
    """A tiny model and rows that say how long each of their answers is; returns the config."""
    folder.mkdir()
    shape = Shape(hidden=32, intermediate=64, layers=2, heads=2, kv_heads=1, head_dim=16, context=_CAP + 16)
    write_model(folder / "model", character_tokenizer(CHARACTERS), shape, seed=1)
    draw = random.Random(seed)
    with (folder / "prompts.jsonl").open("w") as file:
        for number in range(_STEPS * _GROUPS):
            lengths = [min(max(round(draw.lognormvariate(0, sigma) * _MEDIAN), 1), _CAP) for _ in range(_SIZE)]
            row = {"prompt": f"{number}+1=", "answer": str(number + 1), "lengths": lengths}
            file.write(json.dumps(row) + "\n")
    config = folder / "run.toml"
    config.write_text(_SKEWED)
    return config


def trained(config: Path, run_dir: Path, stale: str, seed: int) -> dict[str, Any]:
    """One run, from its lines: seconds of its steps alone, without start and end."""
    options = ("--run.stale", stale, "--run.max-staleness", "1", "--run.seed", str(seed))
    line = headrace("train", str(config), "--run-dir", str(run_dir), *options)
    steps = [json.loads(text) for text in (run_dir / "metrics.jsonl").read_text().splitlines()]
    tokens = sum(step["completion_tokens"] for step in steps)
    return {
        "accuracy": line["eval_after"],
        "gain": None if line["eval_before"] is None else line["eval_after"] - line["eval_before"],
        "seconds": steps[-1]["t"] - steps[0]["t"],
        "tokens_a_second": tokens / (steps[-1]["t"] - steps[0]["t"]),
        "stale_groups": sum(step["groups_stale"] for step in steps),
        "stale_tokens_share": statistics.fmean(step["stale_tokens_share"] for step in steps),
        "token_lag_mean": statistics.fmean(step["token_lag_mean"] for step in steps),
        **{key: (max if key.endswith("max") else statistics.fmean)(step[key] for step in steps) for key in _LENGTHS},
    }


def one_seed(folder: Path, seed: int, kinds: Collection[str], sigma: float) -> Iterator[dict[str, Any]]:
    """Every kind of run with every policy."""
    demo = folder / "first" / "demo"
    if {*kinds} - {"skewed"}:
        headrace("demo", "--run-dir", str(folder / "first"), "--run.seed", str(seed), "--run.max-steps", "1")
    configs = {"skewed": skewed_folder(folder / "skewed", seed, sigma), "demo": demo / "run.toml"}
    turn = seed % len(POLICIES)
    for kind in kinds:
        for stale in POLICIES[turn:] + POLICIES[:turn]:
            if kind == "equal_time":
                found = learned(demo, stale, sigma=sigma, seed=seed)
            else:
                found = trained(configs[kind], folder / f"{kind}-{stale}", stale, seed)
            yield {"kind": kind, "stale": stale, "seed": seed, **found}


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Medians over the seeds, by kind and policy."""
    found: dict[str, dict[str, Any]] = {}
    for kind, stale in {(run["kind"], run["stale"]): None for run in runs}:
        own = [run for run in runs if (run["kind"], run["stale"]) == (kind, stale)]
        keys = [key for key in own[0] if key not in ("kind", "stale", "seed") and own[0][key] is not None]
        found[f"{kind} {stale}"] = {key: statistics.median(run[key] for run in own) for key in keys}
    return found


def main() -> None:
    """Measures, prints, and with --json ends in one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sigma", type=float, default=1.0, help="of the lognormal lengths")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory(prefix="headrace-stale-") as name:
            for run in one_seed(Path(name), seed, options.kinds, options.sigma):
                runs.append(run)
                sys.stderr.write(json.dumps(run) + "\n")
    print(json.dumps({"medians": summary(runs), "runs": runs}, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
