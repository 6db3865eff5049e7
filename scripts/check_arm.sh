#!/usr/bin/env bash
# Runs this checkout on an emulated ARM CPU: the quickstart's job, whose vectors must be those of this machine and
# whose terminal must stay clean, and the tests of rooms that start no process.
#
#   bash scripts/check_arm.sh [ROOM…]    by default tests/encoder, tests/formats and tests/text
#
# It needs Debian, no root, .venv or another interpreter in PYTHON, 4 GB of disk, and 15 minutes on 2 idle cores.
# Debian's Python for arm64, QEMU and PyPI's wheels for aarch64 come into a temporary folder, which is deleted; TMPDIR
# chooses its place. An emulated program starts no child, so tests marked `slow` are left out. Where ARM programs run
# by themselves, on such a machine or in its containers, `bash scripts/test.sh --fast` runs all.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
python=${PYTHON:-$root/.venv/bin/python}
rooms=("$@")
[ $# -gt 0 ] || rooms=(tests/encoder tests/formats tests/text)

fail() {
  echo "check_arm.sh: $*" >&2
  exit 1
}
for program in apt-get dpkg-deb "$python"; do
  command -v "$program" >/dev/null || fail "$program is not there"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export TMPDIR=$work PYTHONDONTWRITEBYTECODE=1 BERT_FEATURES_CACHE=$work/cache HYPOTHESIS_STORAGE_DIRECTORY=$work/hypothesis

# apt-get with a state of its own, in which nothing is installed, so that it fetches all that Python needs.
host=$(dpkg --print-architecture)
mkdir -p apt/lists/partial apt/archives/partial root/usr/lib host logs tests
touch apt/status
private_apt() {
  apt-get -qq -o Dir::State="$work/apt" -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt" \
    -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Architectures::="$host" \
    -o APT::Sandbox::User="$(id -un)" "$@"
}
echo "Fetching Debian's Python for arm64 and QEMU" >&2
private_apt update
private_apt install --download-only --no-install-recommends --yes python3 libstdc++6 "qemu-user-static:$host"
ln -s usr/lib root/lib
for package in apt/archives/*.deb; do
  case $package in
  *_"$host".deb) dpkg-deb -x "$package" host ;;
  *) dpkg-deb -x "$package" root ;;
  esac
done
emulator=$work/host/usr/bin/qemu-aarch64
[ -x "$emulator" ] || emulator+=-static

arm() { # ARGUMENTS OF PYTHON
  QEMU_CPU=max PYTHONPATH=$root:$work/site "$emulator" -L "$work/root" "$work/root/usr/bin/python3" "$@"
}
mkdir source # pip builds where the sources are
cp -R "$root"/{bert_features,LICENSE,README.md,pyproject.toml,setup.cfg} source
version=$(arm -c 'import platform; print(platform.python_version())')
install_packages "$python" --target site --python-platform aarch64-unknown-linux-gnu --python-version "$version" \
  --only-binary :all: --no-binary bert-features --constraint "$root/scripts/constraints.txt" \
  "./source[demo,jax,pandas,sentences]" duckdb hypothesis polars pytest pytest-timeout

cat >texts.txt <<'TEXT'
After stealing money from the bank vault, the bank robber was seen fishing on the Mississippi river bank.
What is Deep Learning?
TEXT
job=(-m bert_features extract texts.txt --config pogiatzis --output)
PYTHONPATH=$root "$python" "${job[@]}" here.parquet >/dev/null 2>noise || { cat noise >&2 && fail "the job failed here"; }
arm "${job[@]}" arm.parquet >/dev/null 2>noise || { cat noise >&2 && fail "the job failed on ARM"; }
! grep -vE '^(running on the CPU|[0-9,]+ (of [0-9,]+ )?examples .*)$' noise >&2 ||
  fail "the job wrote the lines above to the terminal"
verdict=$(PYTHONPATH=$root "$python" -m bert_features compare arm.parquet here.parquet) || fail "$verdict"
echo "The quickstart's job with Python $version on aarch64, beside this machine: $verdict"

cd "$root"
processes=()
for room in "${rooms[@]}"; do
  name=${room//\//-}
  arm -m pytest -q -p no:cacheprovider -m "not slow and not release" --timeout 6000 \
    --basetemp "$work/tests/$name" "$room" >"$work/logs/$name" 2>&1 &
  processes+=($!)
done
status=0
for process in "${processes[@]}"; do
  wait "$process" || status=1
done
for room in "${rooms[@]}"; do
  log=$work/logs/${room//\//-}
  [ "$status" = 0 ] || cat "$log" >&2
  echo "$room: $(tail -n 1 "$log")"
done
exit "$status"
