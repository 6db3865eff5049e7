# shellcheck shell=bash
# Sourced by the scripts in this folder: makes environments in the root of the repository.
#
#   install_into_venv EXTRAS      installs bert_features, as in `install_into_venv demo,test`
#   install_peers                 makes .venv-benchmark: bert_features and what it is compared with

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    if [ -n "$candidate" ] && command -v "$candidate" >/dev/null &&
      "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      echo "$candidate"
      return
    fi
  done
  echo "no Python 3.11 or later is on PATH; install one, or set PYTHON to its path" >&2
  return 1
}

install_into_venv() {
  local python
  if [ ! -x "$root/.venv/bin/python" ]; then
    python=$(find_python)
    "$python" -m venv "$root/.venv"
  fi
  echo "Installing bert_features[$1] into .venv (the first time: minutes, and 2.5 GB of disk)"
  # Twice quiet: pip's notices about itself and its mirrors are not about this project.
  "$root/.venv/bin/python" -m pip install --disable-pip-version-check --quiet --quiet \
    --constraint "$root/scripts/constraints.txt" --editable "${root}[$1]"
}

install_peers() {
  local environment="$root/.venv-benchmark" python
  if [ ! -x "$environment/bin/python" ]; then
    python=$(find_python)
    "$python" -m venv "$environment"
  fi
  echo "Installing bert_features and its peers into .venv-benchmark (the first time: minutes)" >&2
  "$environment/bin/python" -m pip install --disable-pip-version-check --quiet --quiet \
    --constraint "$root/scripts/constraints.txt" \
    --requirement "$root/scripts/benchmark-requirements.txt" --editable "$root[demo]"
}
