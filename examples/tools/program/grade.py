"""The reward of the program: 1 for the right number of pieces, else 0. The program does not see this file."""

import json
from pathlib import Path

answer = Path("answer.txt")
right = answer.is_file() and answer.read_text().strip() == json.loads(Path("task.json").read_text())["pieces"]
Path("/logs/verifier/reward.txt").write_text(str(float(right)))
