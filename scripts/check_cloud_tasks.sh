#!/usr/bin/env bash
# Checks the tasks of configs/cloud/ with SkyPilot's own parser, in .venv-skypilot, which it makes.
# scripts/release.sh runs it. It needs no account and starts no machine.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

# The version that the task's own comments say to install.
requirement=$(sed -n "s/^# *pip install '\(skypilot\)\[gcp\]\(==[0-9.]*\)'$/\1\2/p" "$root/configs/cloud/tpu.yaml")
environment="$root/.venv-skypilot"
make_environment "$environment"
echo "Installing $requirement into .venv-skypilot (the first time: 30 seconds)"
pip_install "$environment/bin/python" "$requirement"

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
HOME=$home SKYPILOT_DISABLE_USAGE_COLLECTION=1 \
  "$environment/bin/python" "$root/scripts/check_cloud_tasks.py" "$root/configs/cloud"
