#!/usr/bin/env bash
# Does a commit change what a run computes, or what it leaves on disk? `tests/house/before_after.sh OLD NEW [FOLDER]`
#
# On this machine, in one environment: the deterministic demo ends in equal weights at both commits, and a run that OLD
# has begun and stopped is in order under NEW (`headrace check`) and resumes there to the weights of OLD.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
usage="usage: before_after.sh OLD NEW [FOLDER]"
old=$(git rev-parse --verify "${1:?$usage}^{commit}")
new=$(git rev-parse --verify "${2:?$usage}^{commit}")
work=${3:-$(mktemp -d)}
python=${PYTHON:-$root/.venv/bin/python}
demo=(--run.max-staleness 0 --rollout.deterministic true --run.max-steps 8 --trainer.checkpoint-every 2)
STEP_S=300 # In which the run that is stopped must come to its second step.

tree() { # tree NAME COMMIT: the files of a commit, beside those of the other
  rm -rf "${work:?}/$1"
  mkdir -p "$work/$1"
  git archive "$2" | tar -x -C "$work/$1"
}
headrace() { # headrace NAME ARGUMENTS...: the command of that commit, found before what is installed
  PYTHONPATH="$work/$1" "$python" -m headrace "${@:2}"
}
weights() { # weights NAME RUN: of a run that is in order; fails if it is not
  headrace "$1" check "$2" --json | "$python" -c 'import json, sys; print(json.loads(sys.stdin.read().splitlines()[-1])["weights_sha256"])'
}
steps() { # steps RUN
  cat "$1/metrics.jsonl" 2>/dev/null | wc -l
}

tree old "$old"
tree new "$new"
cd "$work"
rm -rf runs && mkdir runs
for name in old new; do
  test "$(PYTHONPATH="$work/$name" "$python" -c 'import headrace; print(headrace.__file__)')" = "$work/$name/headrace/__init__.py"
  headrace "$name" demo --run-dir "runs/$name" "${demo[@]}" >"runs/$name.log" 2>&1 || { tail -20 "runs/$name.log"; exit 1; }
done

# `exec`: the signal goes to the command, not to a shell around it. A background job ignores SIGINT, but not SIGTERM.
(export PYTHONPATH="$work/old"; exec "$python" -m headrace demo --run-dir runs/stopped "${demo[@]}") >runs/stopped.log 2>&1 &
run=$!
for ((waited = 0; $(steps runs/stopped) < 2; waited++)); do
  if ((waited >= STEP_S)) || ! kill -0 "$run" 2>/dev/null; then
    echo "the run to be stopped came to no second step:"
    tail -20 runs/stopped.log
    exit 1
  fi
  sleep 1
done
kill -TERM "$run"
wait "$run" || true
made=$(steps runs/stopped)
if ((made >= 8)); then
  echo "the run was over before it was stopped: nothing is proven"
  exit 1
fi
headrace new check runs/stopped >runs/check.log 2>&1 || { echo "a run of OLD is not in order under NEW:"; cat runs/check.log; exit 1; }
headrace new demo --resume --run-dir runs/stopped >>runs/stopped.log 2>&1 || { tail -20 runs/stopped.log; exit 1; }

want=$(weights old runs/old)
for pair in "new runs/new" "new runs/old" "old runs/new" "new runs/stopped"; do
  read -r by run_dir <<<"$pair"
  got=$(weights "$by" "$run_dir")
  if [ "$got" != "$want" ]; then
    echo "$run_dir ends in other weights ($got) than runs/old ($want)"
    exit 1
  fi
done
echo "equal weights at ${old:0:7} and ${new:0:7}; stopped after $made of 8 steps under OLD, resumed under NEW: equal"
