"""What the replay of cut-off sampling is worth: the demo's learning with it, without it, and with nothing cut off.

    python -m benchmarks.cut_sampling --json

For each seed the demo makes its supervised model once; from it the demo's own run is trained three times, one after the
other. `without` draws as `replayed` does, but its loss (a function of one's own, DAPO's clip) takes the policy's
logprobs over the whole vocabulary, while those of the engine stay among the ids kept. What is compared is greedy
accuracy on held-out sums, by version of the weights.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.learning import headrace
from headrace.wire.rundir.evals import evals_of

_WITHOUT = """
from dataclasses import replace

from headrace.services.trainer.algorithms.losses.policy import ppo_clip
from headrace.services.trainer.algorithms.parts import PpoClip


def whole_vocabulary(tokens):
    whole = replace(tokens, logprobs=getattr(tokens, "full", tokens.logprobs))
    return ppo_clip(whole, PpoClip(clip_low=0.2, clip_high=0.28))
"""
_METRICS = ("clip_fraction", "policy_kl", "entropy", "kept_ids_mean", "kept_ids_single_share", "kept_ids_token_bytes")


def trained(config: Path, run_dir: Path, seed: int, options: tuple[str, ...]) -> dict[str, Any]:
    """One run: accuracy by version, and the means of some metrics over its steps."""
    headrace("train", str(config), "--run-dir", str(run_dir), "--run.seed", str(seed), *options)
    steps = [json.loads(text) for text in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return {
        "curve": {int(row["version"]): round(float(row["accuracy"]), 4) for row in evals_of(run_dir)},
        **{key: statistics.fmean(step[key] for step in steps) for key in _METRICS if key in steps[0]},
    }


def one_seed(folder: Path, seed: int, top_p: float) -> dict[str, Any]:
    """The three runs from one model."""
    headrace("demo", "--run-dir", str(folder / "first"), "--run.seed", str(seed), "--run.max-steps", "1")
    own = folder / "own"
    own.mkdir()
    (own / "without_replay.py").write_text(_WITHOUT)
    cut = ("--rollout.sampling.top-p", str(top_p))
    loss = ("--algorithm.path", str(own), "--algorithm.policy-loss", "without_replay:whole_vocabulary")
    kinds = {"replayed": cut, "without": (*cut, *loss), "uncut": ()}
    config = folder / "first" / "demo" / "run.toml"
    return {kind: trained(config, folder / kind, seed, options) for kind, options in kinds.items()}


def main() -> None:
    """Measures, prints, and with --json ends in one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory(prefix="headrace-cut-") as name:
            runs.append(one_seed(Path(name), seed, options.top_p))
        sys.stderr.write(json.dumps({"seed": seed, **runs[-1]}) + "\n")
    curves = {
        kind: {version: round(statistics.fmean(run[kind]["curve"][version] for run in runs), 4) for version in points}
        for kind, points in ((kind, runs[0][kind]["curve"]) for kind in runs[0])
    }
    print(json.dumps({"top_p": options.top_p, "mean": curves, "runs": runs}, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
