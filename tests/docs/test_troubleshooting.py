"""docs/troubleshooting.md: each quoted message exists; each message without a cure is quoted."""

import ast
import re
from pathlib import Path

import pytest

import bert_features

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SOURCES = sorted(Path(bert_features.__file__).parent.rglob("*.py"))
NODES = [node for path in SOURCES for node in ast.walk(ast.parse(path.read_text()))]
ERRORS = re.compile(r"(Config|Checkpoint|Input|Output|Device|BertFeatures)Error")
QUOTE = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
# A message with one of these words says what to do, or what is allowed.
CURE = re.compile(
    r"\b(allowed|at least|at most|call|Check|choose|collect|convert|copy|download|drop|end|exclude"
    r"|expected|extract again|fetch|give|install|keep|leave|name|needs?|number|only|pass|put|raise"
    r"|redirect|run|see|separate|set|take|try|use|wait|write)\b"
)


def read_template(node: ast.expr) -> str:
    """The text of a message, with … where a value stands."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(read_template(value) for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return read_template(node.left) + read_template(node.right)
    return "…"


def normalize(template: str) -> str:
    """Names in braces, as `ConfigError.naming` takes them, become … too."""
    return re.sub(r"\{[^{}]*\}", "…", template)


def read_strings() -> set[str]:
    """The strings of the package of several words, as templates."""
    kinds = (ast.Constant, ast.JoinedStr, ast.BinOp)
    strings = {normalize(read_template(node)) for node in NODES if isinstance(node, kinds)}
    return {string for string in strings if string.strip().count(" ") > 1}


def read_messages() -> set[str]:
    """The messages of the errors that the package raises."""
    return {
        normalize(read_template(call.args[0]))
        for call in NODES
        if isinstance(call, ast.Call) and call.args
        if ERRORS.fullmatch(ast.unparse(call.func).removesuffix(".naming"))
    }


def matches(quote: str, template: str) -> bool:
    """Whether the words of a quote, around its …, stand in the template in this order."""
    at = 0
    for words in quote.split("…"):
        found = template.find(words, at)
        if found < 0:
            return False
        at = found + len(words)
    return True


STRINGS = read_strings()
QUOTES = QUOTE.findall(PAGE)


@pytest.mark.parametrize("quote", QUOTES)
def test_a_quoted_message_exists(quote):
    assert any(matches(quote, template) for template in STRINGS)


def test_a_message_that_does_not_say_what_to_do_is_on_the_page():
    bare = {message for message in read_messages() if not CURE.search(message)}
    bare = {message for message in bare if re.search(r"\w", message)}  # all of it is another error
    assert len(bare) > 50
    quotes = [quote for quote in QUOTES if re.search(r"\w{3}", quote)]
    left_out = {message for message in bare if not any(matches(q, message) for q in quotes)}
    assert left_out == set(), "end the message with what to do, or add it to the page"


def test_another_message_is_not_there():
    assert "no … of …" not in QUOTES
    assert not matches("no … of …", "no file")
    assert matches("no … of …", "there is no file of …, pass one")
    code = ast.parse('f"{a} is {b:d}" + "; pass {c}"', mode="eval")
    assert normalize(read_template(code.body)) == "… is …; pass …"
