#!/usr/bin/env bash
# Extracts features of files on a TPU v5e-8 of Kaggle: eight chips, free, some hours a week. Once, on
# your own computer, with Python 3.11 or later and a verified phone number at Kaggle:
#
#   pip install kaggle==2.2.4 six      # the client needs six, and does not say so
#   kaggle auth login
#
# Then, with your name on Kaggle and files of any input format (docs/formats.md):
#
#   bash configs/cloud/kaggle/run.sh USERNAME texts.txt more.jsonl
#
# It uploads this package and the files as the private dataset bert-features-input, and starts
# extract.py as the private notebook bert-features. Expect the private dataset bert-features-result:
# a folder of shards for `read_features`. docs/tpu.md says how to follow it and what was checked.
# kernel-metadata.json must name no docker_image: such a session gets an image without a TPU
# (https://github.com/Kaggle/kaggle-cli/issues/1197).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)

fail() {
  echo "error: $*" >&2
  exit 1
}

[ $# -ge 2 ] || fail "pass your name on Kaggle and at least one file: bash $0 USERNAME FILE…"
user=$1
shift
[[ $user =~ ^[a-z0-9-]+$ ]] || fail "'$user' is no name on Kaggle; it is the last part of the address of your profile"
command -v kaggle >/dev/null || fail "there is no kaggle client; run: pip install kaggle==2.2.4 six"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/input" "$work/kernel" "$work/source"

# From a copy: a build leaves files, which the next one would take in.
cp -r "$root"/{bert_features,setup.cfg,pyproject.toml,README.md,LICENSE} "$work/source"
"${PYTHON:-python3}" -m pip wheel --quiet --no-deps --wheel-dir "$work/input" "$work/source"
for file in "$here/../constraints.txt" "$@"; do
  [ -f "$file" ] || fail "$file is not a file"
  [[ $file != *.whl && ${file##*/} != dataset-metadata.json ]] || fail "$file has a name that is kept for other files; rename it"
  [ ! -e "$work/input/$(basename "$file")" ] || fail "two files have the name $(basename "$file")"
  cp "$file" "$work/input"
done
input="$user/bert-features-input"
printf '{"id": "%s", "title": "bert-features-input", "licenses": [{"name": "other"}]}' "$input" \
  >"$work/input/dataset-metadata.json"
if kaggle datasets status "$input" >/dev/null 2>&1; then
  what=(version --message "other files")
else
  what=(create)
fi
answer=$(kaggle datasets "${what[@]}" --path "$work/input" --keep-tabular --quiet)
echo "$answer"
# The client's status is 0 even if Kaggle refuses.
[[ $answer == *"is being created"* ]] || exit 1
for ((tries = 0; tries < 120; tries++)); do
  sleep "${KAGGLE_WAIT_SECONDS:-5}"
  status=$(kaggle datasets status "$input" 2>/dev/null) || status="not there yet"
  echo "$input: $status"
  [ "$status" != ready ] || break
done
[ "$status" = ready ] || fail "Kaggle did not finish the dataset; look at https://www.kaggle.com/datasets/$input"

for file in kernel-metadata.json extract.py; do
  sed "s/USERNAME/$user/" "$here/$file" >"$work/kernel/$file"
done
answer=$(kaggle kernels push --path "$work/kernel")
echo "$answer"
[[ $answer == *"successfully pushed"* ]] || exit 1
echo "When 'kaggle kernels status $user/bert-features' says complete:"
echo "  kaggle datasets download $user/bert-features-result --unzip --path features"
