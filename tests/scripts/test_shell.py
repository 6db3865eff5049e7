"""The scripts that users run on any machine need nothing that bash 3.2 or BSD's tools lack."""

import re
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

# What a Mac lacks, by examples on lines of their own.
MISSING = {
    "mapfile -t a\nreadarray a\ncoproc a": r"\b(mapfile|readarray|coproc)\b",
    "local -A a\ndeclare -g a": r"\b(declare|local|typeset) -\w*[Agn]",
    "${a,,}\n${a^^}\n${a@Q}\n${a[-1]}": r"\$\{\w+(,|\^|@[A-Z]|\[-)",
    "a |& b\na &>> b\nwait -n": r"\|&|&>>|\bwait -n",
    "$EPOCHSECONDS\n$BASHPID": r"\bEPOCH(REAL)?SECONDS\b|\bBASHPID\b",
    "sha256sum a\nmd5sum a\ntimeout 5 a\nnproc": r"\b(sha\d+sum|md5sum|timeout|nproc|tac)\b",
    "readlink -f a\nrealpath a\nstat -c %s a": r"\breadlink -|\brealpath\b|\bstat -c",
    "sed -i s/a/b/ c\nsed -nr p\ngrep -oP a": r"\b(sed -\w*[ir]|grep -\w*P)",
    "sort -V\ndate +%N\nhead -n -1\nxargs -r a": r"\bsort -\w*V|\+%N|\bhead -n -|\bxargs -\w*r",
    "cp -t a b\nln -sT a b": r"\b(cp|ln|mv) -\w*[tT]\b",
    "tar -c --sort=name\nmktemp --suffix=a": r"\b(tar|mktemp|ls|cp|rm|mkdir|du)\b[^|;\n]* --\w",
}


@pytest.mark.parametrize("name", ["quickstart", "test", "tour", "venv", "browser"])
def test_a_mac_can_run_it(name):
    text = re.sub(r"(?m)(^|\s)#.*", "", (SCRIPTS / f"{name}.sh").read_text())
    found = {word.group() for pattern in MISSING.values() for word in re.finditer(pattern, text)}
    assert not found


@pytest.mark.parametrize("examples", MISSING)
def test_each_pattern_finds_its_examples(examples):
    for example in examples.split("\n"):
        assert re.search(MISSING[examples], example), example
