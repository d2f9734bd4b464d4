"""What the three runs came to: `python3 report.py FOLDER`. Fails if one of them did not do what it should."""

import json
import math
import sys
from pathlib import Path
from statistics import mean
from typing import Any

ORDERS = math.factorial(5)
"""Orders of the letters of a prompt. A policy that always picks one of so many equally likely answers is log(ORDERS)
nats away."""


def rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def measure(root: Path) -> dict[str, float]:
    """The numbers of all stages."""
    supervised, ranking = (rows(root / stage / "evals.jsonl") for stage in ("sft", "reward_model"))
    steps, looks = (rows(root / "ppo" / name) for name in ("metrics.jsonl", "evals.jsonl"))
    tokens = mean(row["completion_length_mean"] for row in steps)
    last = steps[-5:]
    return {
        "sft_loss_before": supervised[0]["loss"],
        "sft_loss_after": supervised[-1]["loss"],
        "preference_accuracy": ranking[-1]["accuracy"],
        "reward_before": mean(row["reward_mean"] for row in steps[:3]),
        "reward_after": mean(row["reward_mean"] for row in last),
        "ordered_before": looks[0]["accuracy"],
        "ordered_after": looks[-1]["accuracy"],
        "kl_per_answer": tokens * mean(row["kl"] for row in last),
        "kl_bound": 1.25 * math.log(ORDERS),
    }


def failures(found: dict[str, float]) -> list[str]:
    """What should hold and does not."""
    claims = {
        "the supervised loss fell": found["sft_loss_after"] < found["sft_loss_before"],
        "the reward model ranks more than 0.8 of held-out pairs rightly": found["preference_accuracy"] > 0.8,
        "the reward rose": found["reward_after"] > found["reward_before"],
        "more held-out answers are in order": found["ordered_after"] > found["ordered_before"],
        "the policy stayed near its reference": found["kl_per_answer"] < found["kl_bound"],
    }
    return [claim for claim, holds in claims.items() if not holds]


def main(root: Path) -> int:
    """Says what was measured."""
    found = measure(root)
    say = sys.stdout.write
    say("held-out loss of the supervised stage   {sft_loss_before:8.3f} -> {sft_loss_after:.3f}\n".format(**found))
    say("preference accuracy on held-out pairs   {preference_accuracy:8.1%}\n".format(**found))
    say("reward                                  {reward_before:8.3f} -> {reward_after:.3f}\n".format(**found))
    say("held-out answers in order               {ordered_before:8.1%} -> {ordered_after:.1%}\n".format(**found))
    say("KL to the reference, nats an answer     {kl_per_answer:8.2f} (bound {kl_bound:.2f})\n".format(**found))
    say(json.dumps({key: round(value, 4) for key, value in found.items()}) + "\n")
    for claim in failures(found):
        sys.stderr.write(f"does not hold: {claim}\n")
    return bool(failures(found))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
