#!/usr/bin/env bash
# Serves a model folder on the CPU. Usage: serve.sh VENV MODEL PORT [more flags of sglang.launch_server]
# Ready when GET /ready answers 200. The dtype is the model's own unless --dtype says otherwise.
set -euo pipefail

usage="usage: serve.sh VENV MODEL PORT [flags]"
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${1:?$usage} model=${2:?$usage} port=${3:?$usage}
shift 3

# Only this process sees the stand-ins.
export PYTHONPATH=$folder/shims${PYTHONPATH:+:$PYTHONPATH}
# A paused server is alive: its health must not depend on a generated token.
export SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=false
export TORCHELASTIC_USE_AGENT_STORE=False
export HF_HUB_OFFLINE=1 OMP_WAIT_POLICY=PASSIVE
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-lo}

exec "$venv/bin/python" -m sglang.launch_server \
    --model-path "$model" --host 127.0.0.1 --port "$port" \
    --device cpu --attention-backend torch_native --disable-overlap-schedule --sleep-on-idle \
    --mem-fraction-static 0.1 --max-total-tokens 65536 --max-running-requests 65 \
    --enable-metrics --sleep-on-idle --enable-priority-scheduling --skip-server-warmup "$@"
