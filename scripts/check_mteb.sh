#!/usr/bin/env bash
# Runs the recipe for mteb in docs/recipes.md with mteb itself, in .venv-benchmark-mteb. Arguments go
# to check_mteb.py; --help lists them. The first time takes minutes.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

install_peer mteb --constraint "$root/scripts/constraints.txt" --editable "$root[demo]"
exec "$root/.venv-benchmark-mteb/bin/python" "$root/scripts/check_mteb.py" "$@"
