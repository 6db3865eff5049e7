#!/usr/bin/env bash
# Runs on every host of a TPU, started by cloud_tpu_batch.sh: installs bert_features beside itself,
# so that ./bert-features is there. Safe to run again.
#
#   install.sh jax|tensorflow SOURCE
#
# SOURCE is an archive of the tree or a wheel, beside this file, or a URL that pip takes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
runtime=$1 source=$2
# `minilm` and Hugging Face checkpoints are among what extract takes.
extras=demo,hub

# Cloud TPU images are Ubuntu 22.04, whose Python is 3.10; uv brings a newer one where it must.
make_environment() {
  [ ! -x environment/bin/python ] || return 0
  # The variable is for newer images, whose pip guards the system's packages.
  PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --user uv
  python3 -m uv venv --quiet --seed --python '>=3.11,<3.14' environment
}

# The tree's own script knows what belongs together, and in which order.
install_tree() {
  rm -rf tree
  mkdir tree
  tar -xzf "$source" -C tree
  bash tree/scripts/setup_tpu.sh --python "$PWD/environment/bin/python" --runtime "$runtime" \
    --extras "$extras"
}

# A wheel or URL. Only for JAX: TensorFlow's TPU build needs that order.
install_package() {
  local location=$source
  [[ $location == *://* ]] || location=file://$PWD/$location
  python3 -m uv pip install --quiet --python environment/bin/python \
    --reinstall-package bert_features "bert_features[jax,$extras] @ $location" 'jax[tpu]'
}

make_environment
case $source in
  *.tar.gz) install_tree ;;
  *) install_package ;;
esac
ln -sf environment/bin/bert-features bert-features
./bert-features --version
