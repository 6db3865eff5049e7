"""docs/integrations.md: its blocks whose libraries the tests have run, and the check knows all.

`scripts/check_integrations.sh` runs every block, in an environment with all libraries.
"""

import re
import runpy
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
CHECK = runpy.run_path(str(ROOT / "scripts" / "check_integrations.py"))
PAGE = CHECK["PAGE"].read_text(encoding="utf-8")
SECTIONS = CHECK["read_sections"]()
HERE = ["scikit-learn", "tf.data", "DuckDB"]


def test_every_block_of_the_page_is_run():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert [section.code for section in SECTIONS.values()] == blocks[1:]
    assert len(blocks) > 10


def test_a_block_runs_after_the_lines_of_the_beginning_that_it_uses():
    texts, query = re.findall(r"^(?:texts|query) = .*\n", PAGE, re.MULTILINE)[:2]
    for name, lines in {"LangChain": texts + query, "spaCy": texts, "PyTorch": ""}.items():
        assert SECTIONS[name].program == lines + SECTIONS[name].code
    assert SECTIONS["DuckDB"].program == SECTIONS["DuckDB"].code  # it has its own


def test_the_first_list_has_every_section():
    assert sorted(re.findall(r"\[([^]]+)\]\(#", PAGE.partition("\n## ")[0])) == sorted(SECTIONS)


def test_each_library_is_installed_in_one_version():
    file = (ROOT / "scripts" / "requirements-integrations.txt").read_text(encoding="utf-8")
    lines = [line for line in file.splitlines() if not line.startswith("#")]
    pins = {pin.name: [each.operator for each in pin.specifier] for pin in map(Requirement, lines)}
    assert set(pins) == {name for section in SECTIONS.values() for name in section.packages}
    assert [name for name, operators in pins.items() if operators != ["=="]] == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("integrations")
    CHECK["write_files"](folder)
    return folder


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.usefixtures("minilm_dir")
@pytest.mark.parametrize("name", HERE)
def test_the_vectors_are_those_of_encode(name, folder):
    lines = (folder / "texts.txt").read_text(encoding="utf-8").splitlines()
    CHECK["compare"](name, CHECK["run_block"](SECTIONS[name].program, folder), lines)
