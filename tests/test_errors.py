"""Errors: what each message says; their way to another process; the line that installs an extra."""

import ast
import importlib.metadata
import json
import pickle
import re
import shlex
from pathlib import Path

import pytest

import bert_features
from bert_features import errors
from bert_features.errors import MissingExtraError, ServiceError

# Where the message itself says what was received.
_STATE = re.compile(
    r"\b(is|are|was) (both |now )?(closed|empty|given|off|called|forked|one string|vectors|'|True)"
    r"|\b(excludes?|needs) \w|\bis a limit for\b|is set, but only "
    r"|\bthere (is|are) no |\bhas '|\b(both set|cannot go to|is an IterableDataset|of tf_keras)\b"
)
# Names of values that say why, or what to do.
_HELPFUL = re.compile(
    r"cure|hint|advice|remedy|otherwise|convert|known|accepted|mend|error|reason"
    r"|problem|difference|available|listed|what\b|_fits",
    re.I,
)
# Beginnings of messages without a value or a second clause, and why they have none.
EXCEPTIONS = {
    "its modules are \0": "a part of another message",
    "it has a query_expansion": "a part of another message",
    "there is neither \0inner": "a part of another message",
    "\0weights.path\1 has no \0PROJECTION": "a part of another message",
    "multi-vectors are unavailable": "the reason follows",
    "the device of a process failed: ": "the reason of the device's library follows",
    "\0folder\1/\0name\1 is \0what\1": "a table says what such a file is and what to do",
    "a thread that computes has ended": "the log has the cause",
    "the URL holds a name or a password": "a password is not shown",
    "no TPU: this machine has none": "nothing was received",
    "this estimator predicts only": "what was called says what was received",
    "get_features gives pairs": "outputs are too long to show",
    "this layer has 0 blocks": "the number is in the message",
}


def template_of(node):
    """A message with \0value\1 for each value."""
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(map(template_of, node.values))
        case ast.BinOp(op=ast.Add()):
            return template_of(node.left) + template_of(node.right)
        case ast.BinOp():
            return template_of(node.left)
    return f"\0{ast.unparse(getattr(node, 'value', node))}\1"


def messages():
    """Each message of an error of ours: where it is made, and its template."""
    kinds = {name for name in vars(errors) if name.endswith("Error")} - {"MissingExtraError"}
    for path in Path(bert_features.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            if name not in {*kinds, "FieldError"}:
                continue
            text = template_of(call.args[0])
            if re.search(r"\w", re.sub("\0.*?\1", "", text)):  # else it passes another's on
                yield f"{path.name}:{call.lineno}", text


@pytest.mark.slow
def test_every_message_says_what_was_received_and_what_is_allowed():
    found = dict(messages())
    assert len(found) > 400
    lacking = []
    for place, text in found.items():
        has_value = "\0" in text or _STATE.search(text)
        second = re.split("[;:.?] ", text, maxsplit=1)[1:] or [""]
        says_more = re.search(r"[a-z]{2}", re.sub("\0.*?\1", "", second[0])) or any(
            _HELPFUL.search(value) for value in re.findall("\0(.*?)\1", second[0])
        )
        if not (has_value and says_more):
            lacking.append((place, bool(has_value), text))
    known = {start for start in EXCEPTIONS for one in lacking if one[2].startswith(start)}
    assert [one for one in lacking if not one[2].startswith((*known,))] == []
    assert known == {*EXCEPTIONS}


ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def installed(monkeypatch):
    """Puts a made-up record instead of pip's record of where this package came from."""

    def install(record):
        class Distribution:
            def read_text(self, name):
                assert name == "direct_url.json"
                return record if record is None else json.dumps(record)

        monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Distribution())

    return install


@pytest.mark.parametrize(
    ("record", "arguments"),
    [
        ({"url": "file:///src/my%20bert", "dir_info": {}}, ["/src/my bert[serve]"]),
        (
            {"url": "file:///src/bert", "dir_info": {"editable": True}},
            ["--editable", "/src/bert[serve]"],
        ),
        (
            {"url": "file:///w/bert_features-0.1.0-py3-none-any.whl", "archive_info": {}},
            ["bert_features[serve] @ file:///w/bert_features-0.1.0-py3-none-any.whl"],
        ),
        (
            {"url": "https://example.org/bert.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            ["bert_features[serve] @ git+https://example.org/bert.git@abc"],
        ),
    ],
)
def test_an_extra_comes_from_where_the_package_came_from(installed, record, arguments):
    installed(record)
    message = str(MissingExtraError("x", "serve"))
    start = "x is not installed. Install it with: pip install "
    assert message.startswith(start)
    assert shlex.split(message.removeprefix(start)) == arguments


def test_without_a_record_it_is_a_checkout_or_came_from_an_index(installed, monkeypatch):
    installed(None)
    assert str(MissingExtraError("x", "serve")).endswith(shlex.quote(f"{ROOT}[serve]"))
    monkeypatch.setattr(Path, "is_file", lambda path: False)
    assert str(MissingExtraError("x", "serve")).endswith("pip install 'bert_features[serve]'")


def test_a_checkout_that_is_not_installed_names_its_folder(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert str(MissingExtraError("x", "serve")).endswith(shlex.quote(f"{ROOT}[serve]"))


def test_another_package_is_named_as_it_is():
    assert str(MissingExtraError("x", install="gcsfs")).endswith("pip install gcsfs")


def test_errors_are_the_same_in_another_process():
    refused = ServiceError("no")
    refused.status = 422
    for error in (MissingExtraError("x", "serve"), refused):
        other = pickle.loads(pickle.dumps(error))
        assert (type(other), str(other)) == (type(error), str(error))
        assert vars(other) == vars(error)


def test_every_error_is_a_public_name_without_tensorflow(monkeypatch):
    def refuse(*names):
        raise AssertionError("TensorFlow is imported")

    monkeypatch.setattr(bert_features, "import_tensorflow", refuse)
    tree = ast.parse(Path(errors.__file__).read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    names = [name for name in names if name.endswith("Error")]
    assert {"BertFeaturesError", "ServiceError"} < {*names} <= {*bert_features.__all__}
    for name in names:
        assert getattr(bert_features, name) is getattr(errors, name)
