#!/usr/bin/env bash
# Extracts features of many files on a Cloud TPU that exists only as long as that takes: makes a
# queued resource, installs, shares the inputs among the TPU's hosts, makes the resource anew when it
# is preempted, and deletes it whatever happened. --help says how to use it, docs/cloud_tpu.md more.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/cloud_tpu/files.sh"
source "$here/cloud_tpu/resource.sh"

usage() {
  cat <<'TEXT'
Usage: bash scripts/cloud_tpu_batch.sh --project P --zone Z --accelerator-type T \
           --input 'gs://bucket/in/*.jsonl' --output gs://bucket/out [OPTION …] [-- EXTRACT OPTION …]

Runs `bert-features extract` over the inputs on a Cloud TPU made for it and deleted after it.
Needs gcloud (logged in) and gsutil. Options after -- go to extract.

  --project P             the Google Cloud project
  --zone Z                the zone, as in us-west4-a
  --accelerator-type T    as in v5litepod-8, v6e-8, v5p-8, v4-8
  --input PATTERN         gs:// files, as gsutil's wildcards name them
  --output FOLDER         gs:// folder of the results: NAME.FORMAT for the input NAME
  --format F              parquet, jsonl, npz, hdf5 or tfrecord        [parquet]
  --runtime R             jax or tensorflow                            [jax]
  --source S              what to install: this tree or another, a wheel, or a URL that pip
                          takes (git+https://…)                        [this tree]
  --file F                a file or folder that extract's options name, by its last part
                          (--file a/my.toml -- --config my.toml); may be repeated
  --spot                  cheaper, may be preempted; else on demand
  --runtime-version V     the TPU VM's image                           [by accelerator type]
  --create-option O       one more option of `gcloud … queued-resources create`, as in
                          --create-option=--service-account=NAME; may be repeated
  --name N                of the resource and its node   [bert-features-DATE-TIME-PROCESS]
  --max-attempts N        how many times to begin or go on, all in all [5]
  --poll-seconds N        between two looks at the resource            [30]
  --timeout N             seconds after which to give up and delete    [86400]
  --dry-run               print every cloud command, run none

Exit status: 0 all results are there; 1 failed; 2 bad usage; 3 the resource could not be deleted
and MAY STILL COST MONEY (the command to run is printed). Ended by a signal: 128 and its number.
Results that are there already are not computed again: after a failure run the same command.
TEXT
}

project='' zone='' accelerator_type='' input='' output='' runtime_version=''
format=parquet runtime=jax source=$(dirname "$here") name=bert-features-$(date +%Y%m%d-%H%M%S)-$$
max_attempts=5 poll_seconds=30 timeout=86400 spot=() dry_run=''
create_options=() files=() extract_options=()

place=()       # --project and --zone, for every command about the resource
work=$(mktemp -d)
inputs_total=0 # how many there are, for messages
hosts_are_set_up=''
exec 3>&1      # where --dry-run prints, from within $(…) too

# --- messages ----------------------------------------------------------------------------------

say() {
  printf 'cloud_tpu_batch: %s\n' "$*" >&2
}

# What happens; in a dry run nothing does.
log() {
  [ -n "$dry_run" ] || say "$@"
}

die() {
  say "error: $*"
  exit 1
}

bad_usage() {
  say "error: $*; see --help"
  exit 2
}

# The words as a line that can be pasted into a shell.
quote() {
  local line
  printf -v line ' %q' "$@"
  printf '%s\n' "${line# }"
}

# --- options -----------------------------------------------------------------------------------

set_option() {
  local variable=${1#--}
  case $1 in
    --file) files+=("$2") ;;
    --create-option) create_options+=("$2") ;;
    *) printf -v "${variable//-/_}" %s "$2" ;;
  esac
}

parse_options() {
  while [ $# -gt 0 ]; do
    case $1 in
      --help | -h) usage && exit 0 ;;
      --spot) spot=(--spot) ;;
      --dry-run) dry_run=yes ;;
      --) shift && extract_options=("$@") && return ;;
      --project | --zone | --accelerator-type | --input | --output | --format | --runtime | \
        --source | --file | --runtime-version | --create-option | --name | --max-attempts | \
        --poll-seconds | --timeout)
        [ $# -ge 2 ] || bad_usage "$1 takes a value"
        set_option "$1" "$2"
        shift
        ;;
      --*=*)
        set -- "${1%%=*}" "${1#*=}" "${@:2}"
        continue
        ;;
      *) bad_usage "unknown option $1 (extract's own go after --)" ;;
    esac
    shift
  done
}

require_one_of() {
  local option=$1 value=$2 allowed
  shift 2
  for allowed in "$@"; do
    [ "$value" != "$allowed" ] || return 0
  done
  bad_usage "$option is '$value'; allowed: $*"
}

check_options() {
  local option
  for option in project zone accelerator_type input output; do
    [ -n "${!option}" ] || bad_usage "--${option//_/-} is missing"
  done
  for option in input output; do
    [[ ${!option} == gs://?*/?* ]] || bad_usage "--$option is '${!option}'; allowed: gs://bucket/…"
  done
  output=${output%/}
  require_one_of --format "$format" parquet jsonl npz hdf5 tfrecord
  require_one_of --runtime "$runtime" jax tensorflow
  for option in max_attempts poll_seconds timeout; do
    [[ ${!option} =~ ^[0-9]+$ ]] || bad_usage "--${option//_/-} is '${!option}'; allowed: an integer"
  done
  [ "$max_attempts" -ge 1 ] || bad_usage "--max-attempts is 0; allowed: at least 1"
  [[ $name =~ ^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$ ]] ||
    bad_usage "--name is '$name'; allowed: a-z, 0-9 and -, beginning with a letter, at most 63"
  check_extract_options
  [ -n "$runtime_version" ] || runtime_version=$(default_runtime_version)
}

check_extract_options() {
  local option
  for option in ${extract_options[@]+"${extract_options[@]}"}; do
    case $option in
      --output* | -o* | --format* | --ledger* | --runtime*)
        [[ $option == --output-spec* ]] || bad_usage "$option is this script's to say, not extract's"
        ;;
    esac
  done
}

# Images by generation: cloud.google.com/tpu/docs/runtimes.
default_runtime_version() {
  case $accelerator_type in
    v5litepod-*) echo v2-alpha-tpuv5-lite ;;
    v5p-*) echo v2-alpha-tpuv5 ;;
    v6e-*) echo v2-alpha-tpuv6e ;;
    v2-* | v3-* | v4-*) echo tpu-ubuntu2204-base ;;
    *) bad_usage "no image is known for $accelerator_type; say --runtime-version" ;;
  esac
}

# --- before anything costs ---------------------------------------------------------------------

check_programs() {
  local program account
  if [ -z "$dry_run" ]; then
    for program in gcloud gsutil; do
      type -P "$program" >/dev/null ||
        die "$program is not on PATH; install the Google Cloud CLI (cloud.google.com/sdk)"
    done
  fi
  account=$(gcloud auth list --filter=status:ACTIVE --format='value(account)')
  [ -n "$account$dry_run" ] || die "gcloud is not logged in; run: gcloud auth login"
}

# Writes to $work/pending what is to do. In a dry run nothing is known to be there.
look_at_inputs() {
  list_pending "$input" "$output" "$work" >"$work/pending" || die "the inputs cannot be listed"
  inputs_total=$(wc -l <"$work/inputs" | tr -d ' ')
}

check_inputs() {
  look_at_inputs
  [ -n "$dry_run" ] && return
  [ "$inputs_total" -gt 0 ] || die "--input $input matches no file"
  if cut -d' ' -f3- "$work/inputs" | grep -q '[][*?]'; then
    die "an input's name has one of []*? in it, which gsutil takes for wildcards; rename it"
  fi
  case "$input $output/" in
    *'**'*" $(input_root "$input")"*) die "--output lies where --input would find the results" ;;
  esac
}

# One output holds results of one kind. Writing this down is also the proof that one may write.
check_settings() {
  quote "--format=$format" ${extract_options[@]+"${extract_options[@]}"} >"$work/settings"
  if_any gsutil cat "$output/_settings.txt" >"$work/settings.before" ||
    die "--output $output cannot be read"
  if [ -s "$work/settings.before" ]; then
    cmp -s "$work/settings" "$work/settings.before" ||
      die "--output holds results of other settings ($(cat "$work/settings.before")); take another"
  else
    gsutil -q cp "$work/settings" "$output/_settings.txt" || die "--output $output cannot be written"
  fi
  if_any gsutil -q rm "$output/**.error.txt" || die "--output $output cannot be written"
}

check_name_is_free() {
  local state
  state=$(queued_state ABSENT) || exit 1
  [ "$state" = ABSENT ] ||
    die "a queued resource $name exists already ($state), and it is not this run's; take another" \
      "--name, or delete it: $(delete_command)"
}

# What is installed, as it lies on the hosts; a tree is packed without what it has built.
pack_source() {
  case $source in
    *://*) source_there=$source ;;
    *.whl)
      [ -f "$source" ] || die "--source $source is not there"
      source_there=${source##*/}
      files+=("$source")
      ;;
    *)
      [ -f "$source/setup.cfg" ] || die "--source $source is no tree of bert_features, wheel or URL"
      source_there=source.tar.gz
      tar -C "$source" --exclude=__pycache__ -czf "$work/source.tar.gz" \
        setup.cfg pyproject.toml README.md LICENSE bert_features scripts
      files+=("$work/source.tar.gz")
      ;;
  esac
  [ "$runtime-$source_there" != tensorflow-source.tar.gz ] || return 0
  [ "$runtime" = jax ] || die "--runtime tensorflow needs a tree as --source, for its setup_tpu.sh"
}

check_files() {
  local file
  for file in ${files[@]+"${files[@]}"}; do
    [ -e "$file" ] || die "--file $file is not there"
  done
}

# --- the job -----------------------------------------------------------------------------------

# ConnectTimeout and ServerAliveInterval, because a preempted host does not say goodbye; BatchMode,
# because nobody is there to answer. gcloud itself tries ten times where ssh fails.
on_hosts() {
  interruptible tpus tpu-vm ssh "${place[@]}" --worker=all --quiet --ssh-flag=-oBatchMode=yes \
    --ssh-flag=-oConnectTimeout=20 --ssh-flag=-oServerAliveInterval=30 --command="$1"
}

# sshd of a new TPU VM takes a moment.
wait_for_ssh() {
  local try
  for try in 1 2 3; do
    on_hosts 'mkdir -p bert_features_batch' && return
    [ "$try" -lt 3 ] && [ "$(queued_state ACTIVE)" = ACTIVE ] || return 1
    pause
  done
}

copy_to_hosts() {
  interruptible gcloud compute tpus tpu-vm scp --recurse "$here"/cloud_tpu/{files,install,worker}.sh \
    ${files[@]+"${files[@]}"} "$name:bert_features_batch/" "${place[@]}" --worker=all --quiet
}

set_up_hosts() {
  [ -z "$hosts_are_set_up" ] || return 0 # a worker may still run there, of a connection that was lost
  wait_for_ssh && copy_to_hosts &&
    on_hosts "bash bert_features_batch/install.sh $runtime $(quote "$source_there")" &&
    hosts_are_set_up=yes
}

run_on_hosts() {
  on_hosts "bash bert_features_batch/worker.sh $(quote "$input" "$output" "$format" \
    --runtime "$runtime" --device tpu ${extract_options[@]+"${extract_options[@]}"})"
}

# Whether the TPU is still there after something on it went wrong; what is left of it is deleted.
still_there() {
  local state
  state=$(queued_state ACTIVE) || exit 1
  [ "$state" != ACTIVE ] || return 0
  log "$name was taken away ($state)"
  discard
  return 1
}

discard() {
  hosts_are_set_up=''
  delete_resource || die "what is left of $name cannot be deleted"
}

# Ends the run if all that is left to do has failed by its own fault.
stop_at_failures() {
  local line
  list_failed "$output" >"$work/failed" || die "--output $output cannot be read"
  while IFS= read -r line; do
    line=${line#* * }
    grep -Fxq "$output/${line#"$(input_root "$input")"}.$format.error.txt" "$work/failed" || return 0
  done <"$work/pending"
  log "$(wc -l <"$work/failed" | tr -d ' ') of $inputs_total inputs failed; their logs:"
  cat "$work/failed" >&2
  die "the other results are at $output; after repair the same command goes on from here"
}

# One try to get on. Fails if it is worth another.
attempt() {
  [ "$resource" = made ] || create_resource
  wait_until_active || { discard && return 1; }
  if ! set_up_hosts; then
    still_there || return 1
    die "the TPU could not be set up; what went wrong is said above"
  fi
  run_on_hosts || log "a host ended with an error, or the connection was lost"
  look_at_inputs
  [ -s "$work/pending" ] || return 0
  still_there || return 1
  stop_at_failures
  return 1
}

main() {
  local number
  parse_options "$@"
  check_options
  place=(--project="$project" --zone="$zone")
  start_watchdog
  check_programs
  check_files
  pack_source
  check_inputs
  if [ -z "$dry_run" ] && [ ! -s "$work/pending" ]; then
    log "all $inputs_total results are at $output already"
    return
  fi
  check_settings
  check_name_is_free
  for ((number = 1; number <= max_attempts; ++number)); do
    log "attempt $number of $max_attempts"
    if attempt; then
      log "all $inputs_total results are at $output"
      return
    fi
  done
  die "$(wc -l <"$work/pending" | tr -d ' ') of $inputs_total inputs are left after" \
    "$max_attempts attempts (--max-attempts); the same command goes on from here"
}

set_traps
main "$@"
