"""What the two runs came to: `python3 report.py FOLDER`. Fails if the model did not learn to use the tools."""

import json
import sys
from pathlib import Path


def measure(root: Path) -> dict[str, float]:
    """Share of held-out tasks with a right answer before and after, and the largest gap between trainer and engine: on
    the tokens of steps that could compare any, and on the canary of each publication.
    """
    looks = [json.loads(line) for line in (root / "rl" / "evals.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [json.loads(line) for line in (root / "rl" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "right_before": looks[0]["accuracy"],
        "right_after": looks[-1]["accuracy"],
        "sampled_before": steps[0]["reward_mean"],
        "sampled_after": steps[-1]["reward_mean"],
        "logprob_gap_max": max(step[key] for step in steps for key in ("logprob_gap_max", "canary_gap") if key in step),
    }


def failures(found: dict[str, float]) -> list[str]:
    """What should hold and does not."""
    expected = {
        "held-out tasks answered right before, below 40%": found["right_before"] < 0.4,
        "held-out tasks answered right after, above 80%": found["right_after"] > 0.8,
        "trainer and engine agree on all tokens that both computed with the same weights, to 1e-4 nats": found[
            "logprob_gap_max"
        ]
        <= 1e-4,
    }
    return [text for text, holds in expected.items() if not holds]


def main(root: Path) -> int:
    """Prints the numbers; returns the exit status."""
    found = measure(root)
    sys.stdout.write(
        f"held-out tasks answered right   {found['right_before']:.0%} -> {found['right_after']:.0%}\n"
        f"sampled episodes with a reward  {found['sampled_before']:.0%} -> {found['sampled_after']:.0%}\n"
    )
    for text in failures(found):
        sys.stderr.write(f"missed: {text}\n")
    sys.stdout.write(json.dumps({key: round(value, 6) for key, value in found.items()}) + "\n")
    return bool(failures(found))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
