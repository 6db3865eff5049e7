# shellcheck shell=bash
# Sourced by cloud_tpu_batch.sh: how it runs cloud commands, and the life of its one queued resource,
# from the request to the deletion that no way out misses. From the script that sources it come the
# options (name, accelerator_type, …), dry_run, work (a folder of its own), log, die and quote.
# shellcheck disable=SC2154 # which are assigned there

child=''      # the process group of the cloud command that runs
watchdog=''   # the process group that waits for the timeout
resource=none # none; unsure (asked for, not confirmed); made

# Every cloud command goes through here, those of files.sh too.
cloud() {
  if [ -n "$dry_run" ]; then
    quote "$@" >&3
  else
    command "$@" 3>&-
  fi
}

gcloud() {
  cloud gcloud "$@"
}

gsutil() {
  cloud gsutil "$@"
}

tpus() {
  local group=$1 verb=$2
  shift 2
  gcloud compute tpus "$group" "$verb" "$name" "$@"
}

# In a process group of its own, waited for by a builtin: so a signal is acted on at once, not when
# hours of ssh are over, and all that the command started can be ended.
interruptible() {
  local status=0
  set -m
  "$@" </dev/null &
  child=$!
  set +m
  wait "$child" || status=$?
  child=''
  return "$status"
}

end_group() {
  [ -z "$1" ] || kill -TERM -- "-$1" 2>/dev/null || true
}

pause() {
  [ -n "$dry_run" ] || interruptible sleep "$poll_seconds"
}

start_watchdog() {
  [ -z "$dry_run" ] || return 0
  set -m
  (sleep "$timeout" && kill -ALRM $$) </dev/null >/dev/null 2>&1 3>&- &
  watchdog=$!
  set +m
}

create_resource() {
  local output_of_create
  resource=unsure
  interruptible tpus queued-resources create --node-id="$name" "${place[@]}" \
    --accelerator-type="$accelerator_type" --runtime-version="$runtime_version" \
    ${spot[@]+"${spot[@]}"} ${create_options[@]+"${create_options[@]}"} --quiet \
    2>"$work/create" || {
    output_of_create=$(tr '\n' ' ' <"$work/create")
    case $output_of_create in
      *ALREADY_EXISTS* | *"already exists"*) resource=none ;; # somebody else's
      *) resource=made ;;                                     # if anything came of it, it goes
    esac
    die "the TPU was not granted: $output_of_create"
  }
  resource=made
  log "requested $name; should this machine go down, delete it: $(delete_command)"
}

# The state of the resource, ABSENT if there is none; $1 is what --dry-run supposes.
queued_state() {
  local state try
  for try in 1 2 3; do
    if state=$(tpus queued-resources describe "${place[@]}" --format='value(state.state)' \
      2>"$work/describe"); then
      echo "${state:-$1}"
      return
    fi
    ! grep -Eqi 'NOT_FOUND|was not found' "$work/describe" || { echo ABSENT && return; }
    [ "$try" -eq 3 ] || sleep "$poll_seconds"
  done
  die "the state of $name cannot be told: $(tr '\n' ' ' <"$work/describe")"
}

wait_until_active() {
  local state last=''
  while true; do
    state=$(queued_state ACTIVE) || exit 1
    [ "$state" = "$last" ] || log "$name is $state"
    last=$state
    case $state in
      ACTIVE) return 0 ;;
      SUSPENDING | SUSPENDED | DELETING | ABSENT) return 1 ;;
      FAILED) die "the TPU was not granted: $(reason_of_failure)" ;;
    esac
    pause
  done
}

reason_of_failure() {
  tpus queued-resources describe "${place[@]}" \
    --format='value(state.failedData.error.message,state.stateInitiator)' 2>&1 | tr '\n' ' '
}

delete_command() {
  quote gcloud compute tpus queued-resources delete "$name" "${place[@]}" --force --quiet
}

# --force deletes the node too, which is what costs.
delete_resource() {
  local try
  for try in 1 2 3 4 5; do
    [ "$try" -eq 1 ] || sleep "$poll_seconds"
    if tpus queued-resources delete "${place[@]}" --force --quiet 2>"$work/delete"; then
      log "deleted $name"
      resource=none
    elif ! grep -Eqi 'NOT_FOUND|was not found' "$work/delete"; then
      log "deleting $name failed: $(tr '\n' ' ' <"$work/delete")"
    elif [ "$resource" = made ] || [ "$try" -eq 5 ]; then
      resource=none # a request that was broken off may yet come into being; this one does not
    fi
    # 0: in a trap a plain return gives the status from before the trap.
    [ "$resource" != none ] || return 0
  done
  return 1
}

warn_of_cost() {
  log "######################################################################"
  log "$name COULD NOT BE DELETED AND MAY GO ON COSTING MONEY. Run this:"
  log "$(delete_command)"
  log "######################################################################"
}

# On every exit. From here on no signal counts: the deletion must not be broken off.
finish() {
  local status=$?
  trap '' INT TERM HUP PIPE ALRM
  set +e
  end_group "$child"
  end_group "$watchdog"
  if [ "$resource" != none ] && ! delete_resource; then
    warn_of_cost
    status=3
  fi
  [ -n "$dry_run" ] || rm -rf "$work" # the printed commands name files in it
  exit "$status"
}

time_is_up() {
  log "error: not finished after $timeout seconds (--timeout); the same command goes on from here"
  exit 1
}

set_traps() {
  trap finish EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 141' PIPE
  trap 'exit 143' TERM
  trap time_is_up ALRM
}
