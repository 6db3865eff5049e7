# shellcheck shell=bash
# Sourced by the scripts in this folder: makes environments in the root of the repository.
#
#   PYTHON=… before a script chooses the interpreter: a name on PATH, or a path
#
#   install_into_venv EXTRAS      installs bert_features, as in `install_into_venv demo,test`
#   install_packages PYTHON …     installs what `pip install` would; what follows are its arguments
#   python_for VERSION            prints an interpreter of that version, from PATH or pyenv
#   install_peers                 makes .venv-benchmark: bert_features and what it is compared with
#   install_peer NAME …           makes .venv-benchmark-NAME for a peer that does not fit in there;
#                                 what follows goes to uv

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

find_python() {
  local candidate candidates=(python3.11 python3.12 python3.13 python3)
  [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
  for candidate in "${candidates[@]}"; do
    if command -v "$candidate" >/dev/null &&
      "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      echo "$candidate"
      return
    fi
  done
  echo "no Python 3.11 or later: ${candidates[*]}; install one, or set PYTHON to its path" >&2
  return 1
}

python_for() { # VERSION
  local candidate
  for candidate in "python$1" ~/.pyenv/versions/"$1".*/bin/python; do
    if [ "$(version_of "$candidate" 2>/dev/null)" = "$1" ]; then
      echo "$candidate"
      return
    fi
  done
  echo "no Python $1 is on PATH or under ~/.pyenv" >&2
  return 1
}

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

# uv takes a quarter of pip's time, compiling included. Of pip's settings it gets these two; where it
# fails, perhaps for want of another, pip installs.
install_packages() {
  local python=$1
  shift
  if "$python" -m pip install --quiet --quiet --disable-pip-version-check uv; then
    UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-}} \
      UV_FIND_LINKS=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}} UV_SYSTEM_CERTS=1 \
      "$python" -m uv pip install --python "$python" --compile-bytecode "$@" && return
  fi
  echo "uv could not install them; trying pip" >&2
  "$python" -m pip install --disable-pip-version-check --progress-bar off "$@" >&2
}

make_environment() { # FOLDER
  local python
  if [ ! -x "$1/bin/python" ]; then
    python=$(find_python)
    "$python" -m venv "$1"
  fi
}

install_into_venv() {
  local chosen present
  make_environment "$root/.venv"
  present=$(version_of "$root/.venv/bin/python")
  chosen=$([ -z "${PYTHON:-}" ] && echo "$present" || version_of "$(find_python)")
  if [ "$chosen" != "$present" ]; then
    echo ".venv has Python $present, and PYTHON is $chosen; delete .venv first, or unset PYTHON" >&2
    return 1
  fi
  echo "Installing bert_features[$1] into .venv (the first time: minutes, and 3 GB of disk or more)"
  install_packages "$root/.venv/bin/python" --constraint "$root/scripts/constraints.txt" \
    --editable "${root}[$1]"
}

install_peers() {
  local environment="$root/.venv-benchmark"
  make_environment "$environment"
  echo "Installing bert_features and its peers into .venv-benchmark (the first time: minutes)" >&2
  install_packages "$environment/bin/python" --constraint "$root/scripts/constraints.txt" \
    --requirement "$root/benchmarks/requirements.txt" --editable "$root[demo]"
}

install_peer() {
  local environment="$root/.venv-benchmark-$1"
  make_environment "$environment"
  echo "Installing $1 into .venv-benchmark-$1 (the first time: minutes)" >&2
  install_packages "$environment/bin/python" --requirement "$root/benchmarks/requirements-$1.txt" "${@:2}"
}
