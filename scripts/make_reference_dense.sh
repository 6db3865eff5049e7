#!/usr/bin/env bash
# Makes tests/data/sentence_dense, with sentence-transformers in the environment of benchmark.sh.
# Arguments go to make_reference_dense.py; --help lists them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

install_peers
exec "$root/.venv-benchmark/bin/python" "$root/scripts/make_reference_dense.py" "$@"
