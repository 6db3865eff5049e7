#!/usr/bin/env bash
# Runs on every host of a TPU, started by cloud_tpu_batch.sh after install.sh: computes this
# host's share of the inputs that have no result yet.
#
#   worker.sh INPUT_PATTERN OUTPUT FORMAT [extract's options …]
#
# An input that fails leaves its log at the output and does not stop the others; the exit status is
# then 1. A result counts only once its .done lies beside it, which is written last: objects of Cloud
# Storage appear whole or not at all, but a result may be two of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ./files.sh
pattern=$1 output=$2 format=$3
shift 3
root=$(input_root "$pattern")
work=$PWD/work

say() {
  printf '[host %s of %s] %s\n' "$host" "$hosts" "$*"
}

metadata() {
  curl --silent --show-error --fail --retry 3 --header 'Metadata-Flavor: Google' \
    "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}

# Which host of how many this is, where JAX itself looks it up (jax._src.clusters.cloud_tpu_cluster).
find_place() {
  local endpoints commas
  host=$(metadata agent-worker-number)
  endpoints=$(metadata worker-network-endpoints)
  commas=${endpoints//[^,]/}
  hosts=$((${#commas} + 1))
}

# A process on one host of a slice waits for the others, for they are to compute together. Here each
# host has files of its own, so libtpu is told that its chips are all there are.
separate_from_other_hosts() {
  local bounds chips
  bounds=$(metadata tpu-env | sed -nE "s/^CHIPS_PER_HOST_BOUNDS: *'?([0-9]+,[0-9]+,[0-9]+)'?.*/\1/p")
  bounds=${bounds:-2,2,1} # what every host of a slice of v4, v5p and v6e has
  chips=$((${bounds//,/*}))
  export TPU_PROCESS_BOUNDS=1,1,1 TPU_CHIPS_PER_PROCESS_BOUNDS=$bounds
  TPU_VISIBLE_CHIPS=$(seq -s, 0 $((chips - 1)))
  export TPU_VISIBLE_CHIPS
}

# The lines of this host that have neither a result nor, from this job, an error.
list_share() {
  local line
  mkdir -p "$work"
  list_inputs "$pattern" >"$work/inputs"
  list_done "$output" >"$work/done"
  list_failed "$output" >"$work/failed"
  awk -v host="$host" -v hosts="$hosts" '(NR - 1) % hosts == host' "$work/inputs" |
    while IFS= read -r line; do
      grep -Fxq -e "$line" "$work/done" ||
        grep -Fxq -e "$(target_of "$line").error.txt" "$work/failed" ||
        printf '%s\n' "$line"
    done
}

url_of() {
  printf '%s' "${1#* * }"
}

target_of() {
  local url
  url=$(url_of "$1")
  printf '%s' "$output/${url#"$root"}.$format"
}

# Extracts the file $1 to $2; what it prints goes to $3 too.
extract() {
  local input=$1 result=$2 log=$3
  shift 3
  ./bert-features extract "$input" --output "$result" "$@" 2>&1 </dev/null |
    tee "$log" | sed "s|^|[host $host of $hosts] |"
}

upload() {
  local result=$1 target=$2
  gsutil -q cp "$result" "$target" </dev/null || return 1
  # jsonl and tfrecord have a second file.
  [ ! -e "$result.metadata.json" ] ||
    gsutil -q cp "$result.metadata.json" "$target.metadata.json" </dev/null
}

# One input, by its line, to its result at the output.
process() {
  local line=$1 url target input result
  shift
  url=$(url_of "$line")
  target=$(target_of "$line")
  input=$work/input/${url##*/}
  result=$work/result/${target##*/}
  rm -rf "$work/input" "$work/result"
  mkdir -p "$work/input" "$work/result"
  gsutil -q cp "$url" "$input" >"$work/log" 2>&1 </dev/null &&
    extract "$input" "$result" "$work/log" "$@" &&
    upload "$result" "$target" 2>>"$work/log" &&
    printf '%s\n' "$line" | gsutil -q cp - "$target.done" 2>>"$work/log"
}

# Speaks before it marks: where nobody listens any more, the connection is lost, not the input bad.
record_failure() {
  say "failed: $(url_of "$1"): $(tail -n 1 "$work/log")"
  gsutil -q cp "$work/log" "$(target_of "$1").error.txt" </dev/null
}

main() {
  local line status failures=0
  # After a lost connection the process of the earlier one may still be at work.
  exec 9>lock
  flock 9
  find_place
  [ "$hosts" -eq 1 ] || separate_from_other_hosts
  list_share >"$work.share"
  say "$(wc -l <"$work.share") inputs to do"
  while IFS= read -r line <&8; do
    status=0
    process "$line" "$@" || status=$?
    [ "$status" -lt 128 ] || exit "$status" # killed: this host is being taken away
    if [ "$status" -ne 0 ]; then
      record_failure "$line"
      failures=$((failures + 1))
    else
      say "done: $(url_of "$line")"
    fi
  done 8<"$work.share"
  [ "$failures" -eq 0 ]
}

main "$@"
