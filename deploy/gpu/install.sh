#!/usr/bin/env bash
# Installs SGLang for GPUs into a virtual environment of its own, about 5 GB of wheels. Usage: install.sh VENV
# Needs Python 3.11 or newer (or PYTHON=...). Done before with the same requirements: returns at once.
set -euo pipefail

folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${1:?usage: install.sh VENV}
python=${PYTHON:-$(command -v python3.11 || command -v python3.12 || command -v python3)}
version=$(cat "$folder/requirements.txt" "$folder/pins.toml" | sha256sum | cut -d' ' -f1)
mark=$venv/.headrace-sglang-gpu

if [[ -f $mark && $(<"$mark") == "$version" ]]; then
    exit 0
fi
rm -f "$mark"
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$folder/requirements.txt"
"$venv/bin/python" "$folder/pins.py" check
echo "$version" > "$mark"
