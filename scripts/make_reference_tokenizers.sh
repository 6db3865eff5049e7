#!/usr/bin/env bash
# Makes tests/data/tokenizers: small tokenizers of ALBERT, XLM-R, RoBERTa and ModernBERT, and what
# transformers and sentencepiece make of some hundred lines with them. It has an environment of its
# own, .venv-benchmark-tokenizers.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

install_peer tokenizers
exec "$root/.venv-benchmark-tokenizers/bin/python" "$root/scripts/make_reference_tokenizers.py" "$@"
