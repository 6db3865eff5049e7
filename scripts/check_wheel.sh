#!/usr/bin/env bash
# Installs a wheel as a stranger does, with the newest versions that pip finds, and uses it without the
# checkout: extracts features, trains on a Keras layer, and asks a service.
#
#   bash scripts/check_wheel.sh WHEEL [VERSION…]   for each version of Python, by default 3.11, 3.12 and 3.13
#
# Each environment is made in a new temporary folder and deleted: 3 GB of disk and three minutes on 2 cores.
# Standard output is a row for each.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

[ $# -gt 0 ] || { echo "usage: bash scripts/check_wheel.sh WHEEL [VERSION…]" >&2 && exit 2; }
wheel=$(realpath -e "$1")
shift
versions=("$@")
[ $# -gt 0 ] || versions=(3.11 3.12 3.13)
work=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"

cat >layer.py <<'PYTHON'
import keras
import numpy as np

from bert_features import BertFeatures, BertTextInput

texts = keras.ops.convert_to_tensor(["a fine film", "a dull film", "fine", "dull"])
ids = BertTextInput.from_checkpoint("minilm", max_seq_length=16)(texts)
output = {"name": "mean", "level": "sequence", "pooling": "mean", "layers": [-1]}
vectors = BertFeatures.from_checkpoint("minilm", [output])(ids)["mean"]
model = keras.Sequential([keras.layers.Dense(1, activation="sigmoid")])
model.compile(loss="binary_crossentropy", optimizer=keras.optimizers.Adam(0.05))
model.fit(vectors, np.array([1, 0, 1, 0]), epochs=60, verbose=0)
assert ((model.predict(vectors, verbose=0)[:, 0] > 0.5) == [True, False, True, False]).all()
PYTHON

cat >client.py <<'PYTHON'
import sys

import numpy as np

from bert_features import Client, read_features

got = Client(sys.argv[1]).encode(["A bank of the river."])
(wanted,) = (record.features.values() for record in read_features("features.parquet"))
np.testing.assert_allclose(got, list(wanted), rtol=0, atol=1e-5)
PYTHON

timed() { # A COMMAND; sets $seconds
  local began=$SECONDS
  "$@" >log 2>&1 || { cat log >&2 && echo "check_wheel.sh: failed with Python $version: $*" >&2 && exit 1; }
  seconds=$((SECONDS - began))
}

serve_and_ask() {
  local port
  port=$("$environment/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  "$environment/bin/bert-features" serve --checkpoint minilm --level sequence --pooling mean --layers=-1 \
    --port "$port" >service.log 2>&1 &
  server=$!
  for _ in $(seq 120); do
    if "$environment/bin/python" -c "import urllib.request as r; r.urlopen('http://127.0.0.1:$port/readyz')"; then
      "$environment/bin/python" client.py "http://127.0.0.1:$port"
      kill "$server" && wait "$server" || true
      server=
      return
    fi
    kill -0 "$server" || break
    sleep 1
  done
  cat service.log
  return 1
}

echo "| Python | TensorFlow, Keras | install | extract | Keras layer | serve |"
echo "|---|---|---|---|---|---|"
echo "A bank of the river." >texts.txt
for version in "${versions[@]}"; do
  environment=$work/$version
  python=$(python_for "$version")
  "$python" -m venv "$environment"
  timed "$environment/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel[demo,serve]"
  row=$seconds
  timed "$environment/bin/bert-features" extract texts.txt --output features.parquet --overwrite \
    --checkpoint minilm --level sequence --pooling mean --layers=-1
  row+=" s | $seconds"
  timed "$environment/bin/python" layer.py
  row+=" s | $seconds"
  timed serve_and_ask
  row+=" s | $seconds s"
  packages=$("$environment/bin/python" -c 'import importlib.metadata as m
print(m.version("tensorflow"), m.version("keras"), sep=", ")')
  echo "| $version | $packages | $row |"
  rm -rf "$environment"
done
