#!/usr/bin/env bash
# Everything that wants a GPU: the tests of this folder, then `headrace doctor --gpu`, which users have too.
#
#   tests/gpu/run.sh                                  on a GPU; some ten minutes
#   HEADRACE_GPU_TESTS_ON=cpu tests/gpu/run.sh        what needs neither CUDA nor NCCL, at a small size; the rest is "not here"
#
# Both run whatever the other ends in; the status is 1 if one failed. Results: $OUT (build/gpu): tests.log, probes.json.
set -u
cd "$(dirname "$0")/../.."
out=${OUT:-build/gpu}
mkdir -p "$out"
python=${PYTHON:-.venv/bin/python}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" TOKENIZERS_PARALLELISM=false
status=0
# A new torch may warn where ours does not: on a GPU that is no failure.
"$python" -m pytest tests/gpu -q -rs -n 0 -p no:cacheprovider -W default >"$out/tests.log" 2>&1 || status=1
tail -n 5 "$out/tests.log"
"$python" -P -m headrace doctor --gpu --json >"$out/probes.json" || status=1
echo "results: $out"
exit $status
