"""Errors that name settings: as keywords in Python, as options on the command line."""

import ast
import string
from pathlib import Path

import bert_features
from bert_features.config.extract_config import ExtractConfig
from bert_features.errors import ConfigError, InputError

# Keywords of functions and options of commands that are no settings.
OTHERS = {"overwrite", "signature", "batch"}


def shout(name, value):
    return f"<{name.upper()} {value}>" if value else f"<{name.upper()}>"


def test_settings_are_keywords_unless_spelled():
    error = ConfigError.naming(
        "{stride} is {received!r}; pass {long_text:'window'}", received="{stride}"
    )
    assert str(error) == "stride is '{stride}'; pass long_text='window'"
    assert error.spelled(shout) == "<STRIDE> is '{stride}'; pass <LONG_TEXT 'window'>"


def test_an_error_inside_an_error_is_spelled_with_it():
    inner = InputError.naming("set {conll_column} to {least}", least=1)
    outer = InputError.naming("in.txt, line 3: {problem}", problem=inner)
    assert str(outer) == "in.txt, line 3: set conll_column to 1"
    assert outer.spelled(shout) == "in.txt, line 3: set <CONLL_COLUMN> to 1"


def test_a_plain_message_is_taken_as_it_is():
    assert str(InputError("{stride} {")) == InputError("{stride} {").spelled(shout) == "{stride} {"


def test_every_name_in_a_message_is_a_value_or_a_setting():
    """A misspelt value would be shown as a setting."""
    checked = 0
    for path in Path(bert_features.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "naming"):
                continue
            if not isinstance(call.args[0], ast.Constant):
                continue
            names = {name for _, name, _, _ in string.Formatter().parse(call.args[0].value) if name}
            values = {keyword.arg for keyword in call.keywords}
            assert values <= names, (path, call.lineno)
            assert names - values <= {*ExtractConfig.model_fields, *OTHERS}, (path, call.lineno)
            checked += 1
    assert checked > 20
