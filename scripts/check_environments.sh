#!/usr/bin/env bash
# Installs bert_features where its users do, beside the versions that a platform has, and runs the
# tests that matter there. None needs a TPU or a GPU.
#
#   bash scripts/check_environments.sh [NAME…]   by default every file of tests/environments/
#
# The head of a file names its Python. Its packages are installed first, as the platform has them; then
# bert_features, as its users install it there, which may replace some. Each environment is made anew as
# .venv-environment-NAME: 2 GB of disk and five minutes on 2 cores. Standard output is a row for each, as
# docs/tpu.md has them. The heads of lowest.txt and newest.txt are the commands that renew them.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
cd "$root"

all_extras=demo,jax,gcs,s3,pandas,plot,ray,serve
tools=(httpx2 hypothesis ipykernel matplotlib nbclient pytest pytest-timeout)
tests=(tests/runtime tests/encoder tests/layers tests/cli/test_extract.py tests/formats/test_formats.py)

check() { # NAME: makes its environment, and prints its line
  local file="tests/environments/$1.txt" environment="$root/.venv-environment-$1" extras=demo,jax
  local python plain= more=()
  case $1 in
  colab-*) more=(tests/scripts/test_notebook.py) ;;
  kaggle-*) plain=tensorflow-cpu ;; # another version of TensorFlow on top of it cannot be imported
  lowest | newest)
    extras=$all_extras
    more=(tests/export tests/neighbors tests/plots tests/probe tests/text tests/extraction/test_tokenizers.py)
    ;;
  esac
  python=$(python_for "$(sed -nE 's/^#.*[Pp]ython(-version)? (3\.[0-9]+).*/\2/p;3q' "$file" | head -n 1)")
  "$python" -m venv --clear "$environment"
  python=$environment/bin/python
  echo "$1: installing $file, then bert_features[$extras]" >&2
  install_packages "$python" --requirement "$file"
  [ -z "$plain" ] || "$python" -m pip uninstall --quiet --yes "$plain"
  install_packages "$python" --editable "$root[$extras]" "${tools[@]}"
  "$python" -m bert_features doctor >&2
  # Packages of other ages warn about each other.
  "$python" -m pytest -q -W ignore::DeprecationWarning "${tests[@]}" ${more[@]+"${more[@]}"} >&2
  "$python" - "$1" <<'PYTHON'
import importlib.metadata
import platform
import sys

versions = map(importlib.metadata.version, ("tensorflow", "keras", "jax"))
print("|", sys.argv[1], "|", ", ".join([platform.python_version(), *versions]), "|")
PYTHON
}

names=("$@")
[ $# -gt 0 ] || for file in tests/environments/*.txt; do names+=("$(basename "$file" .txt)"); done
for name in "${names[@]}"; do
  check "$name"
done
