#!/usr/bin/env bash
# Runs the code of docs/integrations.md with the real libraries, and compares the vectors with those
# of `encode`. Spark needs a Java runtime. Makes .venv-integrations: 6 GB of disk.
#
#   bash scripts/check_integrations.sh              all sections of the page
#   bash scripts/check_integrations.sh SECTION…     some, by their headings, as in "Apache Beam"
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

environment="$root/.venv-integrations"
make_environment "$environment"
echo "Installing bert_features and the libraries into .venv-integrations (the first time: minutes)" >&2
install_packages "$environment/bin/python" --constraint "$root/scripts/constraints.txt" \
  --requirement "$root/scripts/requirements-integrations.txt" --editable "$root[demo,serve]"
exec "$environment/bin/python" "$root/scripts/check_integrations.py" "$@"
