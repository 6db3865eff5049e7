#!/usr/bin/env bash
# Builds what a release uploads from the last commit, checks it, and prints what to upload. It uploads
# nothing and changes no other file.
#
#   bash scripts/release.sh [FOLDER]   into FOLDER, by default dist/
#
# REPOSITORY is the address that the project's links begin with, such as https://github.com/OWNER/NAME; if
# `git remote` names a repository on GitHub, it is the default. PyPI shows README.md, whose links get that
# address.
#
# The checks: no uncommitted changes; CHANGELOG.md has a section of this version; a tag of the commit has
# this version too; README.md has the badge that opens the notebook in Colab, if the repository is on
# GitHub; the wheel is built from the source distribution; both hold every file; PyPI can show the
# description; a second build gives the same bytes; the wheel is installed into an environment of its own, where it extracts features; the
# programs that read configs/cloud/, .github/workflows/ and CITATION.cff accept those files. The wheel's
# environment borrows the dependencies of the one that builds: .venv, or the environment of the
# interpreter in PYTHON.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
folder=$(realpath -m "${1:-$root/dist}")

fail() {
  echo "release.sh: $*" >&2
  exit 1
}

cd "$root"
command -v "$python" >/dev/null || fail "$python is not there; run: bash scripts/test.sh --fast"
changes=$(git status --porcelain) || fail "$root is not a git checkout; make a release from a clone"
[ -z "$changes" ] || fail "there are uncommitted changes; commit them first: $(head -n 1 <<<"$changes")"
version=$(sed -n 's/^version = //p' setup.cfg)
grep -qE "^## \[?${version//./\\.}\]?( |$)" CHANGELOG.md ||
  fail "CHANGELOG.md has no section '## $version'; rename 'Unreleased', or change the version in setup.cfg"
for tag in $(git tag --points-at HEAD 'v*'); do
  [ "$tag" = "v$version" ] || fail "the tag of this commit is $tag, but setup.cfg has version $version"
done

# Colab's badge has the address of the repository, which nothing knows before it is public.
origin=$(git remote get-url origin 2>/dev/null || true)
if [[ $origin =~ github\.com[:/]([^/]+/[^/]+)$ ]]; then
  notebook=https://colab.research.google.com/github/${BASH_REMATCH[1]%.git}/blob/main/scripts/colab_tpu.ipynb
  badge="[![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)]($notebook)"
  grep -qF "$badge" README.md || fail "README.md lacks the badge of this repository; add the line: $badge"
  REPOSITORY=${REPOSITORY:-https://github.com/${BASH_REMATCH[1]%.git}}
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
mkdir "$work/tree"
git archive HEAD | tar -x -C "$work/tree"
if [ -n "${REPOSITORY:-}" ]; then
  "$python" "$root/scripts/add_links.py" "${REPOSITORY%/}" "v$version" "$work/tree"
else
  echo "REPOSITORY is not set, so PyPI will show no links of the project; see the head of this script"
fi

logged() { # A COMMAND, whose output is shown if it fails
  "$@" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2 && fail "the build failed; its last lines are above"; }
}
build() { # FOLDER: the source distribution, packed again with the time of the commit, and the wheel made of it
  logged "$python" -m build --sdist --outdir "$work/raw" "$work/tree"
  mkdir "$1" "$work/source"
  tar -x -C "$work/source" -f "$work/raw/bert_features-$version.tar.gz"
  tar -c -C "$work/source" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --mode=u=rwX,go=rX "bert_features-$version" | gzip -n9 >"$1/bert_features-$version.tar.gz"
  logged "$python" -m build --wheel --outdir "$1" "$work/source/bert_features-$version"
  rm -r "$work/raw" "$work/source"
}
echo "Building bert_features $version from $(git rev-parse --short HEAD), twice"
build "$work/dist"
build "$work/again"
diff -r "$work/dist" "$work/again" >&2 || fail "a second build gave other bytes; see above"
"$python" -m twine check --strict "$work"/dist/* >"$work/log" 2>&1 ||
  { cat "$work/log" >&2 && fail "PyPI would not take these files; see above"; }

# Readers of the code need the Markdown files of the package; users of the wheel do not.
cat >"$work/names.py" <<'END'
import sys, tarfile, zipfile
name = sys.argv[1]
archive = zipfile.ZipFile(name).namelist() if name.endswith(".whl") else [
    member.name.partition("/")[2] for member in tarfile.open(name) if member.isfile()]
print(*sorted(archive), sep="\n")
END
same_files() { # ARCHIVE, AND THE FILES THAT IT MUST HOLD AND MAY HOLD AS PATTERNS
  diff <(git ls-files | grep -E "$2" | grep -vE "$3" | LC_ALL=C sort) \
    <("$python" "$work/names.py" "$1" | grep -vE "$3" | LC_ALL=C sort) ||
    fail "$(basename "$1") does not hold the files of the repository: < is missing, > is too much"
}
same_files "$work"/dist/*.whl '^bert_features/' '\.md$|\.dist-info/'
same_files "$work"/dist/*.tar.gz . '^(\.ci/.*|\.gitignore|MANIFEST\.in|PKG-INFO|configs/extract)$|\.egg-info/'

echo "Installing the wheel into an environment of its own"
"$python" -m venv --without-pip "$work/venv"
"$python" -m pip --python "$work/venv/bin/python" --disable-pip-version-check \
  install --quiet --no-deps --no-index "$work"/dist/*.whl
site() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
site "$python" >"$(site "$work/venv/bin/python")/dependencies.pth"
cd "$work" # so that the checkout is not what is imported
[ "$(venv/bin/bert-features --version)" = "bert-features $version" ] ||
  fail "the installed wheel says '$(venv/bin/bert-features --version)', setup.cfg says $version"
venv/bin/bert-features --help >/dev/null
echo "A bank." >texts.txt
venv/bin/bert-features extract texts.txt --output features.npz --config pogiatzis >"$work/log" 2>&1 ||
  { tail -n 20 "$work/log" >&2 && fail "the installed wheel extracts no features; see above"; }

bash "$root/scripts/check_cloud.sh" skypilot gke kaggle
bash "$root/scripts/check_repository.sh"

mkdir -p "$folder"
mv "$work"/dist/* "$folder"
echo "Every check passed. Upload these files:"
(cd "$folder" && sha256sum "bert_features-$version"*)
echo "with: $python -m twine upload $folder/bert_features-$version*"
echo "then: git tag v$version"
echo "or push that tag, and .github/workflows/release.yml checks and uploads them"
