#!/usr/bin/env bash
# Compares the speed of this project with its peers, in a separate environment, .venv-benchmark.
# Arguments go to benchmark.py; --help lists them. Safe to run again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

environment="$root/.venv-benchmark"
if [ ! -x "$environment/bin/python" ]; then
  python=$(find_python)
  "$python" -m venv "$environment"
fi
echo "Installing bert_features and its peers into .venv-benchmark (the first time: minutes)" >&2
"$environment/bin/python" -m pip install --disable-pip-version-check --quiet --quiet \
  --constraint "$root/scripts/constraints.txt" \
  --requirement "$root/scripts/benchmark-requirements.txt" --editable "$root[demo]"

exec "$environment/bin/python" "$root/scripts/benchmark.py" "$@"
