#!/usr/bin/env bash
# Compares the vectors of `encode` with those of sentence-transformers, in the environment of
# benchmark.sh. Arguments go to check_sentence_transformers.py; --help lists them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

install_peers
exec "$root/.venv-benchmark/bin/python" "$root/scripts/check_sentence_transformers.py" "$@"
