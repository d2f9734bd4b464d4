#!/usr/bin/env bash
# A tiny model learns to use tools, on a laptop, in minutes: the form from examples, the use by reinforcement learning.
#
#     examples/tools/run.sh runs/tools
#
# The two runs lie side by side in the given folder. SFT_OPTIONS and RL_OPTIONS are further options of one stage each;
# HEADRACE names another command.
set -euo pipefail

root=${1:?usage: run.sh FOLDER}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
headrace=${HEADRACE:-headrace}
mkdir -p "$root"
root=$(cd "$root" && pwd)

echo "== data: conversations that mostly guess, tasks to play"
python3 "$here/data.py" "$root/data"

echo "== 1/2 supervised: the model learns the form of a conversation with tools"
$headrace train "$here/sft.toml" --run-dir "$root/sft" --data.path "$root/data/sft.jsonl" \
  --model.make.text "$root/data/words.txt" ${SFT_OPTIONS:-}

echo "== 2/2 GRPO on episodes: to find before counting pays"
$headrace train "$here/run.toml" --run-dir "$root/rl" --data.path "$root/data/tasks.jsonl" \
  --model.path "$root/sft/export" ${RL_OPTIONS:-}

echo "== measured"
python3 "$here/report.py" "$root"
