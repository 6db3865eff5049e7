# shellcheck shell=bash
# Sourced by cloud_tpu_batch.sh, on your machine, and worker.sh, on the TPU's hosts: what lies at the
# input and at the output. Both take the same answer from the same code.
#
# An input is a line `SIZE TIME gs://…`, as `gsutil ls -l` knows it. The result of gs://b/in/x/a.jsonl
# for the pattern gs://b/in/**.jsonl is OUTPUT/x/a.jsonl.FORMAT. Beside it lie, when it is whole,
# OUTPUT/x/a.jsonl.FORMAT.done, which holds the input's line (so an input that changes is computed
# again), or OUTPUT/x/a.jsonl.FORMAT.error.txt, if it failed.

# The folder that names of results are relative to: the pattern up to the last / before a wildcard.
input_root() {
  local fixed=${1%%[*?[]*}
  echo "${fixed%/*}/"
}

# The inputs, largest first: taken in turn by the hosts, they make shares of about the same size.
list_inputs() {
  gsutil ls -l "$1" |
    sed -nE 's#^ *([0-9]+)  ([^ ]+)  (gs://.*[^/])$#\1 \2 \3#p' | LC_ALL=C sort -k1,1nr -k3
}

list_done() {
  if_any gsutil cat "$1/**.done"
}

list_failed() {
  if_any gsutil ls "$1/**.error.txt"
}

# The inputs that have no result yet, of input pattern $1 and output $2; $3 is a folder to work in.
list_pending() {
  list_inputs "$1" >"$3/inputs" && list_done "$2" >"$3/done" || return 1
  grep -Fxv -f "$3/done" "$3/inputs" || [ $? -eq 1 ] # 1: no line is left
}

# Runs a gsutil command for which it is no error that nothing matches.
if_any() {
  local errors status=0
  { errors=$("$@" 2>&1 >&4 4>&-); } 4>&1 || status=$?
  case $errors in
    *"matched no objects"* | *"No URLs matched"*) return 0 ;;
    ?*) printf '%s\n' "$errors" >&2 ;;
  esac
  return "$status"
}
