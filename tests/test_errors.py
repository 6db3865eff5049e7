"""Errors: the line that installs an extra, from wherever the package came."""

import importlib.metadata
import json
import shlex
from pathlib import Path

import pytest

from bert_features.errors import MissingExtraError

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def installed(monkeypatch):
    """Puts a made-up record in place of pip's record of where this package came from."""

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
        (None, ["bert_features[hub]"]),  # from an index
        ({"url": "file:///src/my%20bert", "dir_info": {}}, ["/src/my bert[hub]"]),
        (
            {"url": "file:///src/bert", "dir_info": {"editable": True}},
            ["--editable", "/src/bert[hub]"],
        ),
        (
            {"url": "file:///w/bert_features-0.1.0-py3-none-any.whl", "archive_info": {}},
            ["bert_features[hub] @ file:///w/bert_features-0.1.0-py3-none-any.whl"],
        ),
        (
            {
                "url": "https://example.org/bert.git",
                "vcs_info": {"vcs": "git", "commit_id": "abc"},
            },
            ["bert_features[hub] @ git+https://example.org/bert.git@abc"],
        ),
    ],
)
def test_an_extra_comes_from_where_the_package_came_from(installed, record, arguments):
    installed(record)
    message = str(MissingExtraError("x", "hub"))
    start = "x is not installed. Install it with: pip install "
    assert message.startswith(start)
    assert shlex.split(message.removeprefix(start)) == arguments


def test_a_checkout_that_is_not_installed_names_its_folder(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert str(MissingExtraError("x", "hub")).endswith(shlex.quote(f"{ROOT}[hub]"))


def test_another_package_is_named_as_it_is():
    assert str(MissingExtraError("x", install="gcsfs")).endswith("pip install gcsfs")
