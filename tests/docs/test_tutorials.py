"""docs/tutorials.md: its blocks run one after the other and print what the page says."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tutorials.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
NUMBER = re.compile(r"-?\d+\.\d+")


@pytest.mark.slow
def test_the_blocks_print_what_the_page_says(minilm_dir, capsys):
    assert len(BLOCKS) == PAGE.count("```python") == 9
    names = {}
    for code, printed in BLOCKS:
        assert len([line for line in code.splitlines() if line]) <= 10
        exec(compile(code, "docs/tutorials.md", "exec"), names)
        found = capsys.readouterr().out
        assert NUMBER.sub("#", found) == NUMBER.sub("#", printed)
        numbers = [[float(number) for number in NUMBER.findall(each)] for each in (found, printed)]
        assert numbers[0] == pytest.approx(numbers[1], abs=2e-3)
