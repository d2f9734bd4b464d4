#!/usr/bin/env bash
# A student learns from a teacher's logprobs of its own answers, on a laptop, in minutes.
#
#     examples/distillation/run.sh runs/distillation
#
# The teacher is the demo's model after its 100 steps of reinforcement learning, the student the same model before them.
# DEMO_OPTIONS and DISTILL_OPTIONS are further options of one run each; HEADRACE names another command.
set -euo pipefail

root=${1:?usage: run.sh FOLDER}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
headrace=${HEADRACE:-headrace}
mkdir -p "$root"
root=$(cd "$root" && pwd)

echo "== 1/2 demo: a teacher"
$headrace demo --run-dir "$root/demo" ${DEMO_OPTIONS:-}

echo "== 2/2 distillation: the model that the demo began with learns from it"
$headrace train "$here/run.toml" --run-dir "$root/distillation" --model.path "$root/demo/demo/model" \
  --data.path "$root/demo/demo/prompts.jsonl" --data.eval-path "$root/demo/demo/held_out.jsonl" \
  --reward.scorers '[{"name": "teacher", "options": {"path": "'"$root/demo/export"'"}},
                     {"name": "exact_match", "weight": 0.0}]' ${DISTILL_OPTIONS:-}

echo "== measured"
python3 "$here/report.py" "$root"
