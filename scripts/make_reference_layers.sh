#!/usr/bin/env bash
# Makes the small checkpoints of tests/data/families and their layers, with transformers in an
# environment of its own. Arguments go to make_reference_layers.py; --help lists them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

install_peer references
exec "$root/.venv-benchmark-references/bin/python" "$root/scripts/make_reference_layers.py" "$@"
