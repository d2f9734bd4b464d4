#!/usr/bin/env bash
# Installs SGLang for a CPU into a virtual environment of its own. Usage: install.sh VENV
# Needs Python 3.11 (or PYTHON=...). Done before with the same requirements: returns at once.
set -euo pipefail

folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${1:?usage: install.sh VENV}
python=${PYTHON:-python3.11}
version=$(cat "$folder/requirements.txt" "$folder/requirements-nodeps.txt" | sha256sum | cut -d' ' -f1)
mark=$venv/.headrace-sglang-cpu

if [[ -f $mark && $(<"$mark") == "$version" ]]; then
    exit 0
fi
rm -f "$mark"
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --requirement "$folder/requirements.txt"
"$venv/bin/python" -m pip install --quiet --no-deps --requirement "$folder/requirements-nodeps.txt"
echo "$version" > "$mark"
