"""Is the learning real? The demo over several seeds, and the same runs with shuffled rewards, which must not learn.

    python -m benchmarks.learning --json

For each seed the demo runs as a user runs it. Then the same supervised model is trained again on the same prompts with
their answers permuted, so that a reward says nothing about the sum. Held-out accuracy is always against true answers.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def headrace(*arguments: str) -> Any:
    """Runs a command to its end and returns the JSON object of its last line."""
    command = [sys.executable, "-P", "-m", "headrace", *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def shuffle_answers(path: Path, seed: int) -> None:
    """Gives every prompt the answer of another one."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    answers = [row["answer"] for row in rows]
    random.Random(seed).shuffle(answers)
    shuffled = ({**row, "answer": answer} for row, answer in zip(rows, answers, strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in shuffled))


def one_seed(folder: Path, seed: int) -> dict[str, Any]:
    """The demo, and its control."""
    real = headrace("demo", "--run-dir", str(folder / "real"), "--run.seed", str(seed))
    shutil.copytree(folder / "real" / "demo", folder / "control")
    shuffle_answers(folder / "control" / "prompts.jsonl", seed)
    run_dir = str(folder / "shuffled")
    config = str(folder / "control" / "run.toml")
    control = headrace("train", config, "--run-dir", run_dir, "--run.seed", str(seed))
    gains = {name: line["eval_after"] - line["eval_before"] for name, line in (("gain", real), ("shuffled", control))}
    keys = ("eval_before", "eval_after", "seconds", "steps", "logprob_gap_max")
    return {"seed": seed, **{key: real[key] for key in keys}, **gains, "shuffled_after": control["eval_after"]}


def main() -> None:
    """Measures, prints, and with --json ends in one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory(prefix="headrace-learning-") as name:
            runs.append(one_seed(Path(name), seed))
        sys.stderr.write(json.dumps(runs[-1]) + "\n")
    result = {
        "gain": statistics.median(run["gain"] for run in runs),
        "gain_min": min(run["gain"] for run in runs),
        "gain_shuffled_max": max(run["shuffled"] for run in runs),
        "seconds_max": max(run["seconds"] for run in runs),
        "runs": runs,
    }
    print(json.dumps(result, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
