"""What the two runs came to: `python3 report.py FOLDER`. Fails if the student did not come near its teacher."""

import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

KL, AGREEMENT = "rewards/teacher.kl/mean", "rewards/teacher.agreement/mean"


def rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def measure(root: Path) -> dict[str, float]:
    """The numbers of both runs."""
    steps, looks = (rows(root / "distillation" / name) for name in ("metrics.jsonl", "evals.jsonl"))
    return {
        "kl_before": mean(row[KL] for row in steps[:1]),
        "kl_after": mean(row[KL] for row in steps[-5:]),
        "agreement_before": steps[0][AGREEMENT],
        "agreement_after": mean(row[AGREEMENT] for row in steps[-5:]),
        "accuracy_before": looks[0]["accuracy"],
        "accuracy_after": looks[-1]["accuracy"],
        "accuracy_of_teacher": rows(root / "demo" / "evals.jsonl")[-1]["accuracy"],
    }


def main(root: Path) -> int:
    """Says what was measured."""
    found = measure(root)
    say = sys.stdout.write
    say("reverse KL to the teacher, nats a token   {kl_before:.3f} -> {kl_after:.3f}\n".format(**found))
    say("tokens that the teacher finds likeliest   {agreement_before:.1%} -> {agreement_after:.1%}\n".format(**found))
    say("held-out accuracy                         {accuracy_before:.1%} -> {accuracy_after:.1%}".format(**found))
    say(" (teacher: {accuracy_of_teacher:.1%})\n".format(**found))
    say(json.dumps({key: round(value, 4) for key, value in found.items()}) + "\n")
    return int(found["kl_after"] > found["kl_before"] / 5 or found["accuracy_after"] <= found["accuracy_before"])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
