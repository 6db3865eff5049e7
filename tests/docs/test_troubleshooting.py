"""docs/troubleshooting.md: each quoted message exists in the package."""

import ast
import re
from pathlib import Path

import pytest

import bert_features

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTES = re.findall(r"^- `([^`]+)`: ", PAGE, re.MULTILINE)


def read_template(node: ast.AST) -> str:
    """The text of a message, with … where a value stands."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(read_template(value) for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return read_template(node.left) + read_template(node.right)
    return "…"


@pytest.fixture(scope="module")
def messages() -> set[str]:
    """The strings of the package, as templates."""
    paths = Path(bert_features.__file__).parent.rglob("*.py")
    return {read_template(node) for path in paths for node in ast.walk(ast.parse(path.read_text()))}


def pattern(quote: str) -> re.Pattern[str]:
    """A quote's words, around its …, in this order."""
    words = re.split("…+", quote.strip("…"))  # two .* in a row take minutes
    return re.compile(".*".join(map(re.escape, words)), re.DOTALL)


@pytest.mark.parametrize("quote", QUOTES)
def test_a_quoted_message_exists(quote, messages):
    assert any(pattern(quote).search(message) for message in messages)
