#!/usr/bin/env bash
# Compares the speed of this project with its peers, in a separate environment, .venv-benchmark.
# Arguments go to benchmarks/peers.py; --help lists them. Safe to run again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

install_peers
exec "$root/.venv-benchmark/bin/python" "$root/benchmarks/peers.py" "$@"
