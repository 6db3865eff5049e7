#!/usr/bin/env bash
# Installs what the tests need into .venv, then runs lint, types and tests: two modules at a time,
# as most of their time goes to processes of one thread. Arguments go to pytest; -n0 for one.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
install_into_venv test

cd "$root"
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
.venv/bin/python -m pytest -n2 --dist=loadfile "$@"
