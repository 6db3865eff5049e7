# shellcheck shell=bash
# Sourced by the scripts in this folder: makes environments in the root of the repository.
#
#   PYTHON=… before a script chooses the interpreter: a name on PATH, or a path
#
#   install_into_venv EXTRAS …    installs bert_features, as in `install_into_venv demo,test`; what
#                                 follows goes to pip
#   pip_install PYTHON ARGUMENTS  runs `pip install` and says on standard error what it does
#   python_for VERSION            prints an interpreter of that version, from PATH or pyenv
#   install_peers                 makes .venv-benchmark: bert_features and what it is compared with
#   install_peer NAME …           makes .venv-benchmark-NAME for a peer that does not fit in there;
#                                 what follows goes to pip

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

# Reduces pip's output to a line for each download, and one every 10 seconds. If pip fails, the end
# of its output follows: before that, its notices about itself are not about this project.
pip_install() {
  local python=$1 log started=$SECONDS status=0
  shift
  log=$(mktemp)
  # Until descriptor 9 is closed, which the end of this script does too, also by Ctrl-C.
  exec 9> >(while read -rt "${PIP_LOG_SECONDS:-10}" || [ $? -gt 128 ]; do
    echo "  pip is at work ($((SECONDS - started)) s so far)"
  done >&2)
  "$python" -m pip install --disable-pip-version-check --progress-bar off "$@" 2>&1 9>&- |
    tee "$log" 9>&- | _pip_steps >&2 || status=$?
  exec 9>&-
  [ "$status" = 0 ] || tail -n 20 "$log" >&2
  rm -f "$log"
  return "$status"
}

_pip_steps() {
  local line packages
  while IFS= read -r line; do
    case $line in
    *Downloading\ *.metadata*) ;;
    *Downloading\ *) echo "  downloading ${line#*Downloading }" ;;
    "Installing collected packages: "*)
      IFS=, read -ra packages <<<"${line#*: }"
      echo "  installing ${#packages[@]} packages"
      ;;
    esac
  done
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
  pip_install "$root/.venv/bin/python" --constraint "$root/scripts/constraints.txt" \
    --editable "${root}[$1]" "${@:2}"
}

install_peers() {
  local environment="$root/.venv-benchmark"
  make_environment "$environment"
  echo "Installing bert_features and its peers into .venv-benchmark (the first time: minutes)" >&2
  pip_install "$environment/bin/python" --constraint "$root/scripts/constraints.txt" \
    --requirement "$root/benchmarks/requirements.txt" --editable "$root[demo]"
}

install_peer() {
  local environment="$root/.venv-benchmark-$1"
  make_environment "$environment"
  echo "Installing $1 into .venv-benchmark-$1 (the first time: minutes)" >&2
  pip_install "$environment/bin/python" --requirement "$root/benchmarks/requirements-$1.txt" "${@:2}"
}
