#!/usr/bin/env bash
# Installs bert_features for a TPU, in the one order that works: on a TPU VM, on Colab, or on a
# machine without a TPU that checks code for one. Safe to run again.
#
#   bash scripts/setup_tpu.sh                     makes or completes .venv-tpu
#   bash scripts/setup_tpu.sh --system            installs into the Python on PATH, as on Colab
#   bash scripts/setup_tpu.sh --python PATH       installs into the environment of that Python
#   bash scripts/setup_tpu.sh --runtime jax       JAX, not TensorFlow's TPU build, in .venv-tpu-jax
#   bash scripts/setup_tpu.sh --extras demo,gcs   also installs these extras of bert_features
#   bash scripts/setup_tpu.sh --constraints FILE  pip's versions, such as configs/cloud/constraints.txt
#
# Why the order matters: tensorflow-tpu accepts newer libtpu versions that make its import fail; and
# tensorflow-text, tensorflow-hub and tf_keras require plain tensorflow, whose files would replace
# those of tensorflow-tpu. So these packages are installed without their requirements. `pip check`
# then reports that tensorflow is missing, because it does not know that tensorflow-tpu replaces it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

usage() {
  sed -n '5,10s/^# *//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

runtime=tensorflow
extras=
python=
constraints=$root/scripts/constraints.txt
while [ $# -gt 0 ]; do
  case $1 in
  --system) python=${PYTHON:-python3} ;;
  --python | --runtime | --extras | --constraints)
    [ $# -gt 1 ] || usage
    declare "${1#--}=$2"
    shift
    ;;
  *) usage ;;
  esac
  shift
done
case $runtime in
tensorflow) environment="$root/.venv-tpu" ;;
jax) environment="$root/.venv-tpu-jax" ;;
*) usage ;;
esac

if [ -z "$python" ]; then
  python="$environment/bin/python"
  if [ ! -x "$python" ]; then
    "$(find_python)" -m venv "$environment"
  fi
fi
if [ ! -f "$constraints" ]; then
  echo "error: --constraints is $constraints, which is not a file" >&2
  exit 1
fi
if ! command -v "$python" >/dev/null; then
  echo "error: there is no $python; pass --python the path of a Python 3.11 or later" >&2
  exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "error: $python is older than Python 3.11, which bert_features needs" >&2
  exit 1
fi

# Prints requirements of setup.cfg, one per line: `requirements plain EXTRA…` those that do not
# require TensorFlow, `requirements on_tensorflow` those that do, `requirements all EXTRA…` all.
requirements() {
  "$python" - "$root/setup.cfg" "$@" <<'PYTHON'
import configparser
import re
import sys

path, wanted, *extras = sys.argv[1:]
setup = configparser.ConfigParser()
setup.read(path, encoding="utf-8")
lines = setup["options"]["install_requires"].split("\n") if wanted != "all" else []
table = setup["options.extras_require"]
unknown = [extra for extra in extras if extra not in table]
if unknown:
    sys.exit(f"error: setup.cfg has no extra {', '.join(unknown)}; it has {', '.join(table)}")
for extra in extras:  # the list grows: an extra may name others
    for line in table[extra].split("\n"):
        if own := re.match(r"bert_features\[(.+)\]", line):
            extras += own[1].split(",")
        else:
            lines.append(line)
for line in filter(None, map(str.strip, lines)):
    name = re.match(r"[\w.-]+", line)[0]
    if name == "tensorflow":
        # Both builds of TensorFlow have the same extras.
        found = re.match(r"tensorflow\[(.+)\]", line)
        kind, line = "plain", f"tensorflow-tpu[{found[1]}]" if found else ""
    else:
        kind = "on_tensorflow" if re.match(r"(tensorflow-(text|hub)|tf_keras)$", name) else "plain"
    if line and wanted in ("all", kind):
        print(line)
if wanted == "on_tensorflow":
    print("tf_keras>=2.20,<2.21")  # tensorflow-hub requires it; the version for this TensorFlow
PYTHON
}

install() {
  "$python" -m pip install --disable-pip-version-check --progress-bar off \
    --constraint "$constraints" "$@"
}

installed() {
  "$python" -c 'import sys; from importlib import metadata; metadata.version(sys.argv[1])' "$1" \
    2>/dev/null
}

install_tensorflow() {
  local lines tpu_build on_tensorflow others
  # On separate lines, so that an error ends the script before anything is changed.
  lines=$(requirements all tpu)
  mapfile -t tpu_build <<<"$lines"
  lines=$(requirements on_tensorflow)
  mapfile -t on_tensorflow <<<"$lines"
  # shellcheck disable=SC2086  # one word per extra
  lines=$(requirements plain ${extras//,/ })
  mapfile -t others <<<"$lines"
  # If plain tensorflow was installed over tensorflow-tpu, both are damaged: remove both.
  if installed tensorflow; then
    echo "Removing plain tensorflow, which has no TPU support" >&2
    "$python" -m pip uninstall --yes --quiet --quiet tensorflow tensorflow-tpu
  fi
  install "${tpu_build[@]}"
  install --no-deps "${on_tensorflow[@]}"
  # With tpu_build again, so that pip refuses anything that would change libtpu.
  install "${tpu_build[@]}" "${others[@]}"
  install --no-deps --editable "$root"
}

install_jax() {
  # Plain TensorFlow reads and tokenizes the input; JAX, which brings its own libtpu, computes.
  install --editable "${root}[jax${extras:+,$extras}]" "jax[tpu]"
}

check() {
  TF_CPP_MIN_LOG_LEVEL=3 "$python" - "$@" <<'PYTHON'
import importlib
import os
import sys
from importlib import metadata

from bert_features.machine import hardware

if not hardware.tpu_chips():  # otherwise libtpu asks Google Cloud for the chips
    os.environ |= {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_WORKER_ID": "0",
    }
for name in sys.argv[1:]:
    importlib.import_module(name)
print(f"Python {sys.version.split()[0]} at {sys.executable} imports {', '.join(sys.argv[1:])}")
shown = ("bert_features", "tensorflow-tpu", "tensorflow", "libtpu", "tensorflow-text", "keras", "jax")
versions = {d.metadata["Name"].lower().replace("_", "-"): d.version for d in metadata.distributions()}
for name in shown:
    if found := versions.get(name.replace("_", "-")):
        print(f"  {name:<15} {found}")
PYTHON
}

# shellcheck disable=SC2086  # one word per extra
requirements all ${extras//,/ } >/dev/null # pip only warns of an extra that does not exist
echo "Installing bert_features for TPUs, $runtime runtime (the first time: minutes)" >&2
"install_$runtime"
case $runtime in
tensorflow) check tensorflow tensorflow_text ;;
jax) check jax tensorflow tensorflow_text ;;
esac
