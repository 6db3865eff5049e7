#!/usr/bin/env bash
# Installs what the tests need into .venv, then runs lint, format, types and tests.
#
#   bash scripts/test.sh                   what every change must pass
#   bash scripts/test.sh --all             also the tests marked `release`: minutes more
#   bash scripts/test.sh --fast            without those marked `slow`: 4 to 6 minutes on 2 cores
#   bash scripts/test.sh [OPTION] ARGS…    ARGS go to pytest: a folder, -k NAME, -n0 for one process
#
# Two modules of tests run at a time, as most of their time goes to processes of one thread. Their
# order is that of tests/conftest.py, where modules with many slow tests come first.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

selection=(-m "not release")
case ${1:-} in
--fast) selection=(-m "not slow and not release") && shift ;;
--all) selection=() && shift ;;
esac

install_into_venv test
# Else each process that a test starts compiles them where Python writes no bytecode, and may warn.
"$root/.venv/bin/python" -m compileall -q "$root/bert_features" "$root/tests"
bash "$root/scripts/browser.sh" ||
  echo "No Chromium for the tests of the page at /: they are skipped" >&2

cd "$root"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
.venv/bin/python -m pytest -n2 --dist=loadfile --no-loadscope-reorder \
  ${selection[@]+"${selection[@]}"} "$@"
