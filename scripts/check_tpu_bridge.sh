#!/usr/bin/env bash
# Checks without a TPU that TensorFlow has TPU kernels for the whole device step. Uses the
# environment .venv-tpu, or the one that BERT_FEATURES_TPU_VENV names. Arguments go to
# check_tpu_bridge.py; --help lists them. Safe to run again.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

environment=${BERT_FEATURES_TPU_VENV:-}
if [ -z "$environment" ]; then
  environment="$root/.venv-tpu"
  bash "$root/scripts/setup_tpu.sh" >&2
fi
if [ ! -x "$environment/bin/python" ]; then
  echo "error: BERT_FEATURES_TPU_VENV is $environment, which has no bin/python" >&2
  exit 1
fi
unset TPU_LIBRARY_PATH  # importing libtpu sets it, and child processes inherit it
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" \
  exec "$environment/bin/python" "$root/scripts/check_tpu_bridge.py" "$@"
