#!/usr/bin/env bash
# The classic chain on a laptop, in minutes: examples, ranked pairs, reinforcement learning.
#
#     examples/rlhf/run.sh runs/rlhf
#
# The three runs lie side by side in the given folder. SFT_OPTIONS, REWARD_OPTIONS and PPO_OPTIONS are further options
# of one stage each; HEADRACE names another command.
set -euo pipefail

root=${1:?usage: run.sh FOLDER}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
headrace=${HEADRACE:-headrace}
mkdir -p "$root"
root=$(cd "$root" && pwd)

echo "== data: words, ranked pairs, prompts"
python3 "$here/data.py" "$root/data"

echo "== 1/3 supervised: the model learns to say the letters again"
$headrace train "$here/sft.toml" --run-dir "$root/sft" --data.path "$root/data/sft.jsonl" ${SFT_OPTIONS:-}

echo "== 2/3 reward model: which of two answers is better?"
$headrace train "$here/reward_model.toml" --run-dir "$root/reward_model" --data.path "$root/data/pairs.jsonl" \
  --model.path "$root/sft/export" ${REWARD_OPTIONS:-}

echo "== 3/3 PPO: answers that the reward model likes, near the model of stage 1"
reward=$root/reward_model/export
$headrace train "$here/ppo.toml" --run-dir "$root/ppo" --data.path "$root/data/prompts.jsonl" \
  --model.path "$root/sft/export" --critic.path "$reward" \
  --reward.scorers '[{"name": "reward_model", "options": {"path": "'"$reward"'"}},
                     {"name": "rewards:quality", "label": "quality", "weight": 0.0}]' ${PPO_OPTIONS:-}

echo "== measured"
python3 "$here/report.py" "$root"
